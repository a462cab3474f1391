-- How a launch's answers agree with the reference's, and what drafting gave.
ALTER TABLE trials
    ADD COLUMN quality text,
    ADD COLUMN quality_reason text,
    ADD COLUMN quality_kl_nats double precision,
    ADD COLUMN quality_kl_low_nats double precision,
    ADD COLUMN quality_kl_high_nats double precision,
    ADD COLUMN quality_top1_agreement double precision,
    ADD COLUMN quality_perplexity_ratio double precision,
    ADD COLUMN quality_duration_s double precision;
ALTER TABLE runs
    ADD COLUMN engine_draft_acceptance_rate double precision,
    ADD COLUMN engine_draft_accepted_length double precision;

CREATE OR REPLACE VIEW v_trials AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, t.sweep_id, t.trial_id, t.hardware, t.node, t.config_id, t.config_name,
    t.replicate, t.simulated, t.status, t.failure_phase, t.failure_cause, t.failure_message,
    s.objective_metric, s.objective_direction, t.objective, t.slo_met, t.started_at, t.duration_s, t.orchestration_s,
    t.engine_start_s, t.load_s, t.production_start_s, t.kv_cache_tokens, t.max_concurrency, t.restored,
    t.production_downtime_s, t.choices, t.ended_at, t.left_out, t.quality, t.quality_reason, t.quality_kl_nats,
    t.quality_top1_agreement, t.quality_perplexity_ratio
FROM trials t JOIN sweeps s USING (sweep_id);
