"""Load generator: offers a workload at a load level, times each request, and judges its own measurement.

assignment          load assignment: what a worker sends, and where; shares of it
messages, wire      messages between a worker pool and its workers; the same as bytes to and from a load host
channel             the pipe to one worker
worker              the process that sends; remote_worker: a load host, with a worker pool of its own
worker_pool         all workers of this machine; remote_worker_pool: all load hosts of a job
observation         observations of several workers as one
generator           one run in one process: which request goes out when; request_source: what is to be sent
connection, stream  one HTTP connection that stamps packets as they arrive; the token stream, read from them afterwards
connection_pool     idle connections of a run
alarm               a timer finer than the event loop's
payload             bytes of a request
tokens, datasets    what prompts are made of: ids and words of known length, prompts and traces from files
prompts, arrivals   a workload as requests, a load level as a timetable
request_rows        requests as a table
metrics_page        the engine's own /metrics
sustainable_rate    the search for the sustainable rate, pure; rate_probe: its probes; rate_search offers them
queue_model         an engine as a queue; queue_estimate: from the requests of probes; model_runs: its long runs
run, job            one run; all runs of one launch
progress            a load as it is seen on a terminal
calibration         what this machine can measure, by the test server (in Python and in C)
"""
