"""The load generator: offers a workload at a load level, times each request, and judges its own measurement.

order, target       what a worker process is told to send, and where
connection, stream  one HTTP connection that stamps packets as they arrive; what they say, read after the fact
transport           httpx's seam around the raw connection
alarm, offering     a timer finer than the event loop's; one run in one process: who sends what when
worker, crew        the process around it; all processes of a machine and their merged observations
host, fleet, wire   a load host; all load hosts of a job and their merged observations; what they say to each other
tokens, datasets    what prompts are made of: ids and words of known length, prompts and traces from files
prompts, arrivals   a workload as requests, a load level as a timetable
workload_file       a workload in a file of its own, and its JSON Schema
rows, summary       requests as a table, and that table as the metrics of a run
scrape, verdict     the engine's own /metrics; whether a run may be ranked
max_rate, virtual   the highest rate within an SLO as a pure search, and the engine in virtual time it is held against
run, job            one run; all runs of one launch
progress            a load as it is seen on a terminal
calibrate, bench    what this machine can measure, by timetable_server or the same in C; the client's figures
"""
