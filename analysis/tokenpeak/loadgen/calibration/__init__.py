"""Calibration: the load client's own error, against a test server that answers at exact moments."""
