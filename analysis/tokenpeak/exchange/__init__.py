"""Other tools' results in, and ours out: files that TokenPeak did not write become archives like its own."""
