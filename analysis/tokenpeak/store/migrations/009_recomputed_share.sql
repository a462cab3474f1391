-- What preemptions cost: a run is invalid beyond 1%, and valid with fewer.
ALTER TABLE runs ADD COLUMN recomputed_share double precision;
