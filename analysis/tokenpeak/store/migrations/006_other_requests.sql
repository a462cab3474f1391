-- The launch of a search's choice on other requests than all others: it stands beside the ranking and takes no part in it.
ALTER TABLE trials ADD COLUMN other_requests boolean NOT NULL DEFAULT false;

CREATE OR REPLACE VIEW v_ranking AS
WITH launches AS (
    SELECT
        sweep_id, hardware, config_id, config_name, choices,
        count(*) FILTER (WHERE status <> 'interrupted') AS launches,
        count(*) FILTER (WHERE status = 'failed') AS failures,
        count(objective) FILTER (WHERE NOT other_requests) AS measured,
        avg(objective) FILTER (WHERE NOT other_requests) AS objective_mean,
        stddev_samp(objective) FILTER (WHERE NOT other_requests) AS objective_std,
        avg(objective) FILTER (WHERE other_requests) AS objective_once_more,
        bool_and(slo_met) FILTER (WHERE status = 'ok' AND NOT other_requests) AS slo_met,
        min(failure_cause) AS failure_cause
    FROM trials
    GROUP BY sweep_id, hardware, config_id, config_name, choices
)
SELECT
    s.name AS sweep_name, s.inventory, l.sweep_id, l.hardware, s.simulated,
    CASE WHEN l.measured > 0 THEN rank() OVER (
        PARTITION BY l.sweep_id, l.hardware, l.measured > 0
        ORDER BY (l.slo_met IS FALSE), CASE s.objective_direction WHEN 'lower' THEN l.objective_mean ELSE -l.objective_mean END
    ) END AS rank,
    l.config_id, l.config_name, s.objective_metric, l.objective_mean, l.objective_std, l.launches, l.measured, l.failures,
    l.failure_cause, l.slo_met, l.choices, l.objective_once_more
FROM launches l JOIN sweeps s USING (sweep_id);
