-- Hot boards draw more: how warm they were when a run began.
ALTER TABLE runs ADD COLUMN temperature_c double precision;
