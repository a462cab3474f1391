"""Makes analysis/tokenpeak/vllm/data/flags.json: which flags and variables each vLLM release takes, from its source.

A development tool; nothing of it runs with the product. `python -m engine_table` in `analysis/` reads the sources of
the releases named in `__main__.py` through pip and writes the table.
"""
