-- Two engine builds may be of one version: which of them a config was launched with.
ALTER TABLE configs ADD COLUMN engine_build text;
