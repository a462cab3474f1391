"""The documentation of this command line, as a part of each site that it builds."""

from tokenpeak.docs.writer import Documentation


def documentation() -> Documentation:
    """What writes the documentation into a site."""
    from tokenpeak.cli import tokenpeak

    return Documentation(commands=tokenpeak)
