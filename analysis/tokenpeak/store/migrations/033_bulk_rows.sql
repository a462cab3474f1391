-- A foreign key looks up the sweep of every row that is loaded, which takes longer than to write it. The two largest
-- tables do without: whoever replaces or removes a sweep deletes their rows too.
ALTER TABLE requests DROP CONSTRAINT requests_sweep_id_fkey;
ALTER TABLE series DROP CONSTRAINT series_sweep_id_fkey;
