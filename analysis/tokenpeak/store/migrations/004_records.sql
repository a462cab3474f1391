-- A sweep's record and how it ended, whole, so that a report can be made from this database alone.
CREATE TABLE records (
    sweep_id text NOT NULL,
    record text NOT NULL,
    end_record text,
    PRIMARY KEY (sweep_id),
    FOREIGN KEY (sweep_id) REFERENCES sweeps ON DELETE CASCADE
);
