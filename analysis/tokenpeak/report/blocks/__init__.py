"""Blocks that pages are made of: sentences, figures, tables, texts to copy, and their look."""
