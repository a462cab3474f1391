-- What another tool measured lacks what it did not keep: missing is null, never zero.
ALTER TABLE sweeps ADD COLUMN imported jsonb;
ALTER TABLE trials ALTER COLUMN duration_s DROP NOT NULL;
ALTER TABLE runs
    ALTER COLUMN started_s DROP NOT NULL,
    ALTER COLUMN seed DROP NOT NULL,
    ALTER COLUMN duration_s DROP NOT NULL,
    ALTER COLUMN requests_sent DROP NOT NULL,
    ALTER COLUMN requests_ok DROP NOT NULL,
    ALTER COLUMN requests_failed DROP NOT NULL,
    ALTER COLUMN input_tokens DROP NOT NULL,
    ALTER COLUMN output_tokens DROP NOT NULL,
    ALTER COLUMN client_processes DROP NOT NULL;
