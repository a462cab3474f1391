"""Facts that change with vLLM's releases: its flags and their renames, its command line, start-up log and errors."""
