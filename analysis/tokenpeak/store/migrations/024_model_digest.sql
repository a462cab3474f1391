-- A model's name does not say which of its conversions was served: the checksum of its files does.
ALTER TABLE trials ADD COLUMN model_digest text;
