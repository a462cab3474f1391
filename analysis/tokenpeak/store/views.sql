-- The public contract: what queries, dashboards and spreadsheets may rely on. Tables may change, these keep their columns.

-- Every trial, whatever came of it, with the sweep it belongs to.
CREATE VIEW v_trials AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, t.sweep_id, t.trial_id, t.hardware, t.node, t.config_id, t.config_name,
    t.replicate, t.simulated, t.status, t.failure_phase, t.failure_cause, t.failure_message,
    s.objective_metric, s.objective_direction, t.objective, t.slo_met, t.started_at, t.duration_s, t.orchestration_s,
    t.engine_start_s, t.load_s, t.production_start_s, t.kv_cache_tokens, t.max_concurrency, t.restored,
    t.production_downtime_s, t.choices, t.ended_at, t.left_out, t.quality, t.quality_reason, t.quality_kl_nats,
    t.quality_top1_agreement, t.quality_perplexity_ratio, t.kv_cache_bytes, t.weights_bytes,
    t.stated_quality, t.engine_choices, t.holdout, t.phases, t.predicted_output_tok_per_s, t.predicted_ttft_s,
    t.predicted_tpot_s, t.predicted_kv_cache_tokens, t.predicted_binding
FROM trials t JOIN sweeps s USING (sweep_id);

-- Every run that was measured, with its trial's config; `verdict` says whether it may be ranked.
CREATE VIEW v_runs AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, r.sweep_id, r.trial_id, r.run_index, r.hardware, r.node, r.config_id,
    r.config_name, r.replicate, r.simulated, r.workload_name, r.level_kind, r.level_label, r.concurrency, r.rate_per_s,
    r.verdict, r.slo_met, r.duration_s, r.requests_sent, r.requests_ok, r.requests_failed, r.input_tokens,
    r.output_tokens, r.request_per_s, r.output_tok_per_s, r.total_tok_per_s, r.goodput_request_per_s,
    r.request_output_tok_per_s_p50, r.ttft_s_p50, r.ttft_s_p95, r.ttft_s_p99, r.tpot_s_p50, r.tpot_s_p95, r.tpot_s_p99,
    r.itl_s_p50, r.itl_s_p99, r.latency_s_p50, r.latency_s_p95, r.latency_s_p99, t.choices, r.input_tok_per_s,
    r.request_output_tok_per_s_mean, r.request_input_tok_per_s_mean, r.ttft_s_mean, n.gpu_count,
    r.output_tok_per_s_per_gpu, t.holdout, r.workload_kind, r.rate_held, r.overloaded, r.max_rate_per_s, r.tpot_s_mean,
    r.latency_s_mean, r.power_w, r.energy_j_per_output_tok, r.cost_per_1m_output_tok, r.cost_currency,
    r.engine_running_mean, r.engine_running_max, r.engine_waiting_mean, r.engine_waiting_max,
    r.engine_kv_cache_usage_mean, r.engine_kv_cache_usage_max, r.engine_preemptions, r.verdict_codes,
    r.inputs_per_s, r.ttfat_s_p50, r.ttfat_s_p95, r.ttfat_s_p99
FROM runs r JOIN sweeps s USING (sweep_id) JOIN trials t USING (sweep_id, trial_id)
LEFT JOIN nodes n ON n.sweep_id = r.sweep_id AND n.node = r.node;

-- Every request of a run, with its config and its times by our definitions; single tokens' times are in the archive.
CREATE VIEW v_requests AS
SELECT
    q.sweep_id, q.trial_id, q.run_index, q.request_index, q.phase, q.turn, r.hardware, r.node, r.config_id,
    r.config_name, r.replicate, r.simulated, r.workload_name, r.level_kind, r.level_label, r.verdict, q.due_s, q.sent_s,
    q.first_token_s, q.last_token_s, q.input_tokens, q.cached_tokens, q.output_tokens, q.status, q.error,
    CASE WHEN q.error IS NULL THEN q.first_token_s - CASE r.level_kind WHEN 'open' THEN q.due_s ELSE q.sent_s END
    END AS ttft_s,
    CASE WHEN q.error IS NULL AND q.output_tokens > 1 THEN (q.last_token_s - q.first_token_s) / (q.output_tokens - 1)
    END AS tpot_s,
    CASE WHEN q.error IS NULL THEN q.last_token_s - CASE r.level_kind WHEN 'open' THEN q.due_s ELSE q.sent_s END
    END AS latency_s,
    q.adapter,
    CASE WHEN q.error IS NULL THEN q.first_answer_s - CASE r.level_kind WHEN 'open' THEN q.due_s ELSE q.sent_s END
    END AS ttfat_s
FROM requests q JOIN runs r USING (sweep_id, trial_id, run_index);

-- What was sampled during each trial: power, clocks and temperature of its boards, queue, batch and KV cache.
CREATE VIEW v_series AS
SELECT
    x.sweep_id, x.trial_id, t.hardware, t.node, t.config_id, t.config_name, t.simulated, x.quantity, x.t_s, x.value
FROM series x JOIN trials t USING (sweep_id, trial_id);

-- Configs by the geometric mean of their objective over launches, without holdout runs; the site ranks by it too.
-- A broken SLO is shown, and moves no rank; a launch whose SLO was not judged leaves the config's open.
CREATE VIEW v_ranking AS
WITH launches AS (
    SELECT
        sweep_id, hardware, config_id, config_name, choices,
        count(*) FILTER (WHERE status <> 'interrupted') AS launches,
        count(*) FILTER (WHERE status = 'failed') AS failures,
        count(objective) FILTER (WHERE NOT holdout) AS measured,
        stddev_samp(objective) FILTER (WHERE NOT holdout) AS objective_std,
        avg(objective) FILTER (WHERE holdout) AS objective_holdout,
        CASE WHEN bool_or(NOT slo_met) FILTER (WHERE objective IS NOT NULL AND NOT holdout) THEN false
            WHEN bool_and(slo_met IS NOT NULL) FILTER (WHERE objective IS NOT NULL AND NOT holdout) THEN true
        END AS slo_met,
        min(failure_cause) AS failure_cause
    FROM trials
    GROUP BY sweep_id, hardware, config_id, config_name, choices
)
SELECT
    s.name AS sweep_name, s.inventory, l.sweep_id, l.hardware, s.simulated, c.rank,
    l.config_id, l.config_name, s.objective_metric, c.objective_mean, l.objective_std, l.objective_holdout,
    l.launches, l.measured, l.failures, l.failure_cause, l.slo_met, l.choices, c.tie_group, c.kept_back
FROM launches l JOIN sweeps s USING (sweep_id) LEFT JOIN configs c USING (sweep_id, hardware, config_id);

-- The decision on each kind of hardware: what to run, or why that is not known. The site and the terminal say the same.
-- A kind without a row has no config that may be named.
CREATE VIEW v_decision AS
SELECT
    s.name AS sweep_name, s.inventory, c.sweep_id, c.hardware, s.simulated, c.decision, c.config_id, c.config_name,
    s.objective_metric, c.objective_mean, g.config_id AS gain_config_id, g.decision_gain, g.decision_gain_low,
    g.decision_gain_high, c.distinguishable, c.further_launches,
    (SELECT count(*) FROM configs t WHERE t.sweep_id = c.sweep_id AND t.hardware = c.hardware AND t.tie_group)
        AS configs_tied
FROM configs c
JOIN sweeps s USING (sweep_id)
LEFT JOIN configs g ON g.sweep_id = c.sweep_id AND g.hardware = c.hardware AND g.decision_gain IS NOT NULL
WHERE c.decision IS NOT NULL;

-- Pairs of alternatives of two axes: the objective's geometric mean over the configs that have both, as in heatmaps.
CREATE VIEW v_pairs AS
WITH chosen AS (
    SELECT c.sweep_id, c.hardware, c.config_id, c.objective_mean, e.key AS axis, e.value AS alternative
    FROM configs c CROSS JOIN jsonb_each_text(c.choices) e
    WHERE c.objective_mean > 0
)
SELECT
    a.sweep_id, a.hardware, a.axis, a.alternative, b.axis AS other_axis, b.alternative AS other_alternative,
    exp(avg(ln(a.objective_mean))) AS objective_mean, count(*) AS configs
FROM chosen a JOIN chosen b USING (sweep_id, hardware, config_id)
WHERE a.axis <> b.axis
GROUP BY a.sweep_id, a.hardware, a.axis, a.alternative, b.axis, b.alternative;

-- Two configs that differ in one axis alone: by how much the objective changes from the other alternative to this one.
-- The mean of ln(ratio) by axis and alternative is the speedup that the hardware page shows.
CREATE VIEW v_one_axis AS
SELECT
    a.sweep_id, a.hardware, e.key AS axis, e.value AS alternative, b.choices ->> e.key AS other_alternative,
    a.config_id, b.config_id AS other_config_id, a.objective_mean / b.objective_mean AS ratio
FROM configs a CROSS JOIN jsonb_each_text(a.choices) e
JOIN configs b ON b.sweep_id = a.sweep_id AND b.hardware = a.hardware AND b.choices - e.key = a.choices - e.key
WHERE a.objective_mean > 0 AND b.objective_mean > 0 AND b.choices ->> e.key <> e.value;

-- Latency and throughput against the load, for each config: request rates, and the concurrency of closed loops.
CREATE VIEW v_rates AS
SELECT
    r.sweep_id, r.trial_id, r.hardware, r.config_id, r.config_name, r.replicate, r.simulated, r.workload_name,
    r.rate_per_s, r.request_per_s, r.output_tok_per_s, r.goodput_request_per_s, r.ttft_s_p95, r.ttft_s_p99,
    r.tpot_s_p95, r.tpot_s_p99, r.slo_met, r.verdict, r.rate_held, r.duration_s, r.steady_state,
    r.percentile_intervals, r.level_kind, r.level_label, r.concurrency, r.request_output_tok_per_s_p50,
    r.input_tok_per_s, r.inputs_per_s, r.latency_s_p95, r.latency_s_p99
FROM runs r;

-- The highest rate of each launch that searched for it; null ends: not known from the search.
CREATE VIEW v_max_rates AS
SELECT
    s.name AS sweep_name, s.inventory, s.study, r.sweep_id, r.trial_id, r.hardware, r.node, r.config_id, r.config_name,
    r.replicate, r.simulated, r.workload_name, r.max_rate_per_s, r.max_rate_low_per_s, r.max_rate_high_per_s,
    r.max_rate_confidence, r.max_rate_ended, r.verdict, r.saturation_per_s, r.saturation_low_per_s,
    r.saturation_high_per_s
FROM runs r JOIN sweeps s USING (sweep_id)
WHERE r.max_rate_ended IS NOT NULL;

-- What a run's tokens cost in energy, air, water and money, and how that is known.
CREATE VIEW v_energy AS
SELECT
    r.sweep_id, r.trial_id, r.run_index, r.hardware, r.config_id, r.config_name, r.simulated, r.workload_name,
    r.level_label, r.energy_source, r.energy_boundary, r.energy_j, r.power_w, r.energy_j_per_output_tok,
    r.energy_kwh_per_1m_output_tok, r.co2_kg_per_1m_output_tok, r.water_l_per_1m_output_tok, r.cost_per_1m_output_tok,
    r.cost_currency, r.output_tok_per_s, r.verdict,
    r.energy_low_j, r.energy_high_j
FROM runs r
WHERE r.energy_j IS NOT NULL OR r.energy_j_per_output_tok IS NOT NULL;

-- Configs by the geometric mean of what the tokens of their objective runs cost, over launches that may be ranked.
CREATE VIEW v_energy_configs AS
SELECT
    r.sweep_id, r.hardware, r.config_id, r.config_name, r.simulated,
    exp(avg(ln(r.energy_j_per_output_tok))) AS energy_j_per_output_tok,
    exp(avg(ln(r.energy_kwh_per_1m_output_tok))) AS energy_kwh_per_1m_output_tok,
    exp(avg(ln(r.co2_kg_per_1m_output_tok))) AS co2_kg_per_1m_output_tok,
    exp(avg(ln(r.water_l_per_1m_output_tok))) AS water_l_per_1m_output_tok,
    exp(avg(ln(r.cost_per_1m_output_tok))) AS cost_per_1m_output_tok,
    min(r.cost_currency) AS cost_currency, exp(avg(ln(r.output_tok_per_s))) AS output_tok_per_s,
    min(r.energy_source) AS energy_source, min(r.energy_boundary) AS energy_boundary, count(*) AS measured
FROM runs r
JOIN sweeps s ON s.sweep_id = r.sweep_id
    AND s.objective_workload = r.workload_name AND s.objective_level = r.level_label
JOIN trials t ON t.sweep_id = r.sweep_id AND t.trial_id = r.trial_id
WHERE r.verdict <> 'invalid' AND NOT t.holdout AND r.energy_j_per_output_tok > 0
GROUP BY r.sweep_id, r.hardware, r.config_id, r.config_name, r.simulated;

-- Configs of the matrix and what became of them, the dropped ones with their reason.
CREATE VIEW v_configs AS
SELECT
    c.sweep_id, c.hardware, c.config_id, c.config_name, c.config_class, c.status, c.dropped_rule, c.dropped_reason,
    c.model_name, c.engine_version, c.flags, c.env, c.choices, c.predicted_output_tok_per_s, c.predicted_binding,
    coalesce(r.launches, 0) AS launches, r.objective_mean
FROM configs c LEFT JOIN v_ranking r USING (sweep_id, hardware, config_id);

-- Configs whose answers were compared with the reference's: what they are worth, and their speed, ranked or not.
CREATE VIEW v_quality AS
SELECT
    c.sweep_id, c.hardware, c.config_id, c.config_name, c.quality, c.quality_reason, c.quality_is_reference,
    c.quality_changes, c.quality_kl_nats, c.quality_kl_low_nats, c.quality_kl_high_nats, c.quality_answer_kl_nats,
    c.quality_long_kl_nats, c.quality_top1_agreement, c.quality_perplexity_ratio, c.quality_same_answers,
    c.quality_tasks, c.quality_tasks_right, c.quality_reference_tasks_right, c.rank, c.objective_mean,
    c.objective_unproven_mean
FROM configs c
WHERE c.quality IS NOT NULL;
