"""`tokenpeak load`: offer a load to any OpenAI-compatible server and say what was seen."""

from pathlib import Path

import click


@click.command(name="load")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="A file that holds all runs of a launch.")
def load(job_path: Path | None) -> None:
    """Offer a load to a server and measure how it is served."""
    from tokenpeak.load.job import read_job, run_job

    if job_path is not None:
        run_job(read_job(job_path))
