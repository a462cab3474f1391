"""The load generator: offers a workload at a load level, times each request, and judges its own measurement.

order        what a worker process is told to send
connection   one HTTP connection: writes a request, stamps packets as they arrive
stream       what the stamped packets say, read after the fact
offering     one run in one process: who sends what when
worker       the process around it
crew         the worker processes of a job, and their merged observations
tokens       token ids and words of known length for an engine whose vocabulary is not known
prompts      a workload as requests
arrivals     a load level as a timetable
rows         requests as a table
summary      that table as the metrics of a run
scrape       the engine's own /metrics
verdict      whether a run may be ranked
max_rate     the highest rate within an SLO, as a pure search
job          all runs of one launch
"""
