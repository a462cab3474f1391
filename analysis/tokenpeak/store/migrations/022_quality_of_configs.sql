-- How the answers of each config agree with the reference's; a launch shows them for all configs that answer alike.
ALTER TABLE trials
    ADD COLUMN predicted_draft_accepted_length double precision,
    ADD COLUMN quality_problem text,
    ADD COLUMN quality_accepted_tokens bigint,
    ADD COLUMN quality_cached_tokens bigint,
    ADD COLUMN objective_unproven double precision;
ALTER TABLE configs
    ADD COLUMN predicted_draft_accepted_length double precision,
    ADD COLUMN objective_unproven_mean double precision,
    ADD COLUMN quality text,
    ADD COLUMN quality_reason text,
    ADD COLUMN quality_is_reference boolean,
    ADD COLUMN quality_changes text[] NOT NULL DEFAULT '{}',
    ADD COLUMN quality_kl_nats double precision,
    ADD COLUMN quality_kl_low_nats double precision,
    ADD COLUMN quality_kl_high_nats double precision,
    ADD COLUMN quality_answer_kl_nats double precision,
    ADD COLUMN quality_answer_kl_low_nats double precision,
    ADD COLUMN quality_answer_kl_high_nats double precision,
    ADD COLUMN quality_long_kl_nats double precision,
    ADD COLUMN quality_long_kl_low_nats double precision,
    ADD COLUMN quality_long_kl_high_nats double precision,
    ADD COLUMN quality_top1_agreement double precision,
    ADD COLUMN quality_perplexity_ratio double precision,
    ADD COLUMN quality_perplexity_ratio_low double precision,
    ADD COLUMN quality_perplexity_ratio_high double precision,
    ADD COLUMN quality_same_answers double precision,
    ADD COLUMN quality_tasks bigint,
    ADD COLUMN quality_tasks_right bigint,
    ADD COLUMN quality_reference_tasks_right bigint,
    ADD COLUMN quality_margin_nats double precision,
    ADD COLUMN quality_examples jsonb NOT NULL DEFAULT '[]';

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
