"""The site: notebooks run, pages written, rebuilt where something changed, cleaned and published."""
