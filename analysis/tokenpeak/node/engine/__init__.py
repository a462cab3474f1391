"""Engine under test: its builds, start as a command or a container, log, launch and finish."""
