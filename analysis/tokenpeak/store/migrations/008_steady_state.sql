-- Whether the engine kept up with a run's rate, how well its percentiles are known, and what it can serve at most.
ALTER TABLE runs
    ADD COLUMN saturation_per_s double precision,
    ADD COLUMN saturation_low_per_s double precision,
    ADD COLUMN saturation_high_per_s double precision,
    ADD COLUMN steady_state text,
    ADD COLUMN queue_growth double precision,
    ADD COLUMN queue_growth_error double precision,
    ADD COLUMN steady_state_margin double precision,
    ADD COLUMN percentile_intervals jsonb;

CREATE OR REPLACE VIEW v_max_rates AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, r.sweep_id, r.trial_id, r.hardware, r.node, r.config_id, r.config_name,
    r.replicate, r.simulated, r.workload_name, r.max_rate_per_s, r.max_rate_low_per_s, r.max_rate_high_per_s,
    r.max_rate_confidence, r.max_rate_ended, r.verdict, r.saturation_per_s, r.saturation_low_per_s,
    r.saturation_high_per_s
FROM runs r JOIN sweeps s USING (sweep_id)
WHERE r.max_rate_ended IS NOT NULL;

CREATE OR REPLACE VIEW v_rates AS
SELECT
    r.sweep_id, r.trial_id, r.hardware, r.config_id, r.config_name, r.replicate, r.simulated, r.workload_name,
    r.rate_per_s, r.request_per_s, r.output_tok_per_s, r.goodput_request_per_s, r.ttft_s_p95, r.ttft_s_p99,
    r.tpot_s_p95, r.tpot_s_p99, r.slo_met, r.verdict, r.rate_held, r.duration_s, r.steady_state, r.percentile_intervals
FROM runs r
WHERE r.level_kind = 'open';
