-- How many of a run's requests held each limit of its SLO, from which follows how sure a kept SLO is.
ALTER TABLE runs ADD COLUMN within_limits jsonb NOT NULL DEFAULT '{}';
