-- What a node's boards, or the node, draw before any engine starts, and the share of each figure that this comes to.
ALTER TABLE runs ADD COLUMN idle_power_w double precision, ADD COLUMN idle_share double precision;
