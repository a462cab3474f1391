"""The machine below all else: processes, sockets, containers, users, files changed as root, words from outside."""
