"""Documentation: the pages of site/content/docs in the site's look, with a reference made of the code itself."""
