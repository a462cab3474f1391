"""Calibration: the load client's own error, against a test server with an exact timetable."""
