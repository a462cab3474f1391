"""Checks on figures and on what is said of them. Pure functions over a sweep's frames.

Each module holds one kind of mistake: the check of a claim, with parameters, and the guard that runs on every sweep
without any. catalogue.py lists both.
"""
