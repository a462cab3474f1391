-- The highest rate within the limits, as a search found it, with every rate that it tried.
ALTER TABLE runs
    ADD COLUMN max_rate_per_s double precision,
    ADD COLUMN max_rate_low_per_s double precision,
    ADD COLUMN max_rate_high_per_s double precision,
    ADD COLUMN max_rate_confidence double precision,
    ADD COLUMN max_rate_ended text,
    ADD COLUMN max_rate_probes jsonb;

-- The highest rate of each launch that searched for it; null ends: the search could not tell that end.
CREATE VIEW v_max_rates AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, r.sweep_id, r.trial_id, r.hardware, r.node, r.config_id, r.config_name,
    r.replicate, r.simulated, r.workload_name, r.max_rate_per_s, r.max_rate_low_per_s, r.max_rate_high_per_s,
    r.max_rate_confidence, r.max_rate_ended, r.verdict
FROM runs r JOIN sweeps s USING (sweep_id)
WHERE r.max_rate_ended IS NOT NULL;
