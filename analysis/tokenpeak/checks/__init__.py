"""Checks on figures and on what is said of them. Pure functions over a sweep's frames.

A module holds mistakes of one kind: checks of claims, with parameters, and guards that run on every sweep without any.
catalogue.py lists both.
"""
