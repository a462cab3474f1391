"""`tokenpeak calibrate`: what this machine can measure."""

import click


@click.command(name="calibrate")
@click.option("--streams", type=int, multiple=True, help="Streams to try; may be given several times.")
@click.option("--rate", "rates", type=float, multiple=True, help="Tokens per second of each stream.")
@click.option("--seconds", type=float, default=4.0, show_default=True, help="How long each point is measured.")
def calibrate(streams: tuple[int, ...], rates: tuple[float, ...], seconds: float) -> None:
    """Hold the load client against an exact timetable and keep its error on this machine."""
    from tokenpeak.load import calibrate as module

    found = module.calibrate(
        lambda point: click.echo(f"{point.streams} streams: measured", err=True),
        streams=streams or module.STREAMS,
        rates=rates or (module.TOKEN_RATE_PER_STREAM,),
        seconds=seconds,
    )
    click.echo(module.as_text(found))
