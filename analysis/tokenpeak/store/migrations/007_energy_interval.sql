-- A measured energy has an interval; a run that was too short for one has no energy, and says what length would do.
ALTER TABLE runs ADD COLUMN energy_low_j double precision, ADD COLUMN energy_high_j double precision,
    ADD COLUMN energy_needed_s double precision;
CREATE OR REPLACE VIEW v_energy AS
SELECT
    r.sweep_id, r.trial_id, r.run_index, r.hardware, r.config_id, r.config_name, r.simulated, r.workload_name,
    r.level_label, r.energy_source, r.energy_boundary, r.energy_j, r.power_w, r.energy_j_per_output_tok,
    r.energy_kwh_per_1m_output_tok, r.co2_kg_per_1m_output_tok, r.water_l_per_1m_output_tok, r.cost_per_1m_output_tok,
    r.cost_currency, r.output_tok_per_s, r.verdict,
    r.energy_low_j, r.energy_high_j
FROM runs r
WHERE r.energy_j IS NOT NULL;
