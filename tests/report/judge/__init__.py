"""An independent judge of the site: what its sentences and cards say, recomputed from raw JSON.

It shares no code with TokenPeak: it reads the archive's files and the built pages, and knows the formulas of the
methodology page.
"""
