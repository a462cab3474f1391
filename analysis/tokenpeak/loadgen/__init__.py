"""Load generator: offers a workload at a load level, times each request, and judges its own measurement.

job, run            all runs of one launch, as files; carrying them out, and requests as a table
assignment          what a worker sends, and where; its requests in order
generator           one run in one process: which request goes out when
prompts, datasets   a workload as requests; prompts from files
traces              recorded requests, from the formats of others
arrivals            a load level as a timetable
progress            a load as it is seen on a terminal
http                connections, stamped streams, the server and its metrics page
workers             worker processes and load hosts, their messages, the pools that split a load among them
rate                the search for the sustainable rate: its probes, and an engine as a queue
calibration         what this machine can measure, by the test server (a program in C)
"""
