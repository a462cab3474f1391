"""What a vLLM release changes: its flags and their renames, its command line, start-up log and errors."""
