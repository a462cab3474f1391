"""From what was observed to what is recorded: verdict, run summary, energy, trial time, prediction accuracy."""
