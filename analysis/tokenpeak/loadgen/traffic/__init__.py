"""Traffic of production, as its own metrics show it, made a trace that can be replayed. Of no prompt is anything read.

readings   production's counts over a while, as arrays
lengths    how long prompts and answers are, and what of a prompt was cached
arrivals   when requests came, and how bursty that is
traffic    both together: what a person reads of it, and the file
"""
