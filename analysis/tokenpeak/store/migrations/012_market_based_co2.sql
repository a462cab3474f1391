-- CO₂ by contracts and certificates, where a factor for it is given, beside that of the grid.
ALTER TABLE runs ADD COLUMN co2_market_kg_per_1m_output_tok double precision;
