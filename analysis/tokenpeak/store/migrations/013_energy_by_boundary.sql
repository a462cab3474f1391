-- What a meter of the whole node or of its processors says beside the boards.
ALTER TABLE runs ADD COLUMN node_j_per_output_tok double precision, ADD COLUMN cpu_j_per_output_tok double precision;
