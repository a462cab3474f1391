-- One mean and one order everywhere: the geometric mean over launches, by which the site ranks too. An SLO that was
-- broken is told, and moves no rank; a launch whose SLO was not judged leaves the config's open.
CREATE OR REPLACE VIEW v_ranking AS
WITH launches AS (
    SELECT
        sweep_id, hardware, config_id, config_name, choices,
        count(*) FILTER (WHERE status <> 'interrupted') AS launches,
        count(*) FILTER (WHERE status = 'failed') AS failures,
        count(objective) FILTER (WHERE NOT other_requests) AS measured,
        CASE WHEN min(objective) FILTER (WHERE NOT other_requests) > 0
            THEN exp(avg(ln(nullif(objective, 0))) FILTER (WHERE NOT other_requests))
            ELSE min(objective) FILTER (WHERE NOT other_requests)
        END AS objective_mean,
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
    s.name AS sweep_name, s.inventory, l.sweep_id, l.hardware, s.simulated,
    CASE WHEN l.measured > 0 THEN rank() OVER (
        PARTITION BY l.sweep_id, l.hardware, l.measured > 0
        ORDER BY CASE s.objective_direction WHEN 'lower' THEN l.objective_mean ELSE -l.objective_mean END
    ) END AS rank,
    l.config_id, l.config_name, s.objective_metric, l.objective_mean, l.objective_std, l.launches, l.measured, l.failures,
    l.failure_cause, l.slo_met, l.choices, l.objective_once_more
FROM launches l JOIN sweeps s USING (sweep_id);

CREATE OR REPLACE VIEW v_configs AS
SELECT
    c.sweep_id, c.hardware, c.config_id, c.config_name, c.config_class, c.status, c.dropped_rule, c.dropped_reason,
    c.model_name, c.engine_version, c.flags, c.env, c.choices, c.predicted_output_tok_per_s, c.predicted_binding,
    coalesce(r.launches, 0) AS launches, r.objective_mean
FROM configs c LEFT JOIN v_ranking r USING (sweep_id, hardware, config_id);
