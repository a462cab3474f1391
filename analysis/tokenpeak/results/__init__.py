"""From what was observed to what is recorded: run summary, validity, energy, trial time, prediction accuracy."""
