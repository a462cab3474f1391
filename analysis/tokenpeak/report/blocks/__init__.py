"""What a page is made of: sentences, figures, tables, texts to copy, and their look."""
