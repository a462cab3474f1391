-- Launches that compare nodes, of the same config on each of them, rank no config.
ALTER TABLE trials ADD COLUMN node_screening boolean NOT NULL DEFAULT false;
