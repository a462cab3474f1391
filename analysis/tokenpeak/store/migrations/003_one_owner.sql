-- When a trial ended, which is the order in which a search learns, and why its other runs were left out.
ALTER TABLE trials ADD COLUMN ended_at timestamptz, ADD COLUMN left_out text;
UPDATE trials SET ended_at = started_at + make_interval(secs => coalesce(duration_s, 0));
ALTER TABLE trials ALTER COLUMN ended_at SET NOT NULL;

CREATE OR REPLACE VIEW v_trials AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, t.sweep_id, t.trial_id, t.hardware, t.node, t.config_id, t.config_name,
    t.replicate, t.simulated, t.status, t.failure_phase, t.failure_cause, t.failure_message,
    s.objective_metric, s.objective_direction, t.objective, t.slo_met, t.started_at, t.duration_s, t.orchestration_s,
    t.engine_start_s, t.load_s, t.production_start_s, t.kv_cache_tokens, t.max_concurrency, t.restored,
    t.production_downtime_s, t.choices, t.ended_at, t.left_out
FROM trials t JOIN sweeps s USING (sweep_id);

-- Whether a run's rate held, by its record; null in a database that was there until `make ingest`.
ALTER TABLE runs ADD COLUMN well_measured boolean, ADD COLUMN overloaded boolean, ADD COLUMN rate_held boolean;

CREATE OR REPLACE VIEW v_rates AS
SELECT
    r.sweep_id, r.trial_id, r.hardware, r.config_id, r.config_name, r.replicate, r.simulated, r.workload_name,
    r.rate_per_s, r.request_per_s, r.output_tok_per_s, r.goodput_request_per_s, r.ttft_s_p95, r.ttft_s_p99,
    r.tpot_s_p95, r.tpot_s_p99, r.slo_met, r.verdict, r.rate_held
FROM runs r
WHERE r.level_kind = 'open';

-- Ranks come with the configs: stats/ranks.py decides them for terminal, pages, exports and this database alike.
ALTER TABLE configs ADD COLUMN rank bigint, ADD COLUMN objective_mean double precision;
UPDATE configs c SET objective_mean = r.objective_mean, rank = CASE WHEN r.objective_mean > 0 THEN r.rank END
FROM v_ranking r
WHERE r.sweep_id = c.sweep_id AND r.hardware = c.hardware AND r.config_id = c.config_id;

CREATE OR REPLACE VIEW v_ranking AS
WITH launches AS (
    SELECT
        sweep_id, hardware, config_id, config_name, choices,
        count(*) FILTER (WHERE status <> 'interrupted') AS launches,
        count(*) FILTER (WHERE status = 'failed') AS failures,
        count(objective) FILTER (WHERE NOT other_requests) AS measured,
        stddev_samp(objective) FILTER (WHERE NOT other_requests) AS objective_std,
        avg(objective) FILTER (WHERE other_requests) AS objective_once_more,
        CASE WHEN bool_or(NOT slo_met) FILTER (WHERE objective IS NOT NULL AND NOT other_requests) THEN false
            WHEN bool_and(slo_met IS NOT NULL) FILTER (WHERE objective IS NOT NULL AND NOT other_requests) THEN true
        END AS slo_met,
        min(failure_cause) AS failure_cause
    FROM trials
    GROUP BY sweep_id, hardware, config_id, config_name, choices
)
SELECT
    s.name AS sweep_name, s.inventory, l.sweep_id, l.hardware, s.simulated, c.rank,
    l.config_id, l.config_name, s.objective_metric, c.objective_mean, l.objective_std, l.objective_once_more,
    l.launches, l.measured, l.failures, l.failure_cause, l.slo_met, l.choices
FROM launches l JOIN sweeps s USING (sweep_id) LEFT JOIN configs c USING (sweep_id, hardware, config_id);
