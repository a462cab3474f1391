"""The archive of raw files, the frames made from it, and the database filled from those frames."""
