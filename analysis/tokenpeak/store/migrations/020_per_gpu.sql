-- Throughput and highest rate of one of the GPUs that a config's engine takes.
ALTER TABLE runs ADD COLUMN output_tok_per_s_per_gpu double precision, ADD COLUMN max_rate_per_s_per_gpu double precision;
