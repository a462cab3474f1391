-- A version does not say which build of it ran: the image's digest, or the checksum of the command's file, does.
ALTER TABLE trials ADD COLUMN engine_digest text;
