-- A unique index over five columns takes longer to fill than the rows take to write, and each row of a sweep that is
-- loaded again is compared with the one that it replaces. The two largest tables have a row once by how they are
-- loaded: a sweep's rows are replaced whole, by one process at a time.
ALTER TABLE requests DROP CONSTRAINT requests_pkey;
ALTER TABLE series DROP CONSTRAINT series_pkey;
CREATE INDEX requests_of_trial ON requests (sweep_id, trial_id);
CREATE INDEX series_of_trial ON series (sweep_id, trial_id);
