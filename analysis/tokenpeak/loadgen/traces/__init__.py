"""Traces: recorded requests, read from the formats that others write, and made ready to be replayed.

trace       requests with their times, lengths and what their prompts share; windows, copies, speed
formats     the formats: which keys mark one, and what a row of it says
spans       spans of OpenTelemetry and reports of GuideLLM, taken apart into rows
request_log vLLM's own log of requests, taken apart into rows
reading     a file as a trace
"""
