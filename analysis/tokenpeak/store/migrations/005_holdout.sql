-- A holdout run is called so everywhere.
ALTER TABLE trials RENAME COLUMN other_requests TO holdout;
ALTER VIEW v_ranking RENAME COLUMN objective_once_more TO objective_holdout;
