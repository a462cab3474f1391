"""Load generator: offers a workload at a load level, times each request, and judges its own measurement.

job, run            all runs of one launch; one run
assignment          load assignment: what a worker sends, and where; shares of it
generator           one run in one process: which request goes out when; request_source: what is to be sent
prompts, datasets   a workload as requests; prompts and traces from files
arrivals            a load level as a timetable
request_rows        requests as a table
progress            a load as it is seen on a terminal
http                connections, stamped streams, the server and its metrics page
workers             worker processes and load hosts, their messages, the pools that split a load among them
rate                the search for the sustainable rate: its probes, and an engine as a queue
calibration         what this machine can measure, by the test server (in Python and in C)
"""
