"""`tokenpeak quality`: have a server answer as the reference, or measure how another agrees with those answers."""

import sys
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tokenpeak.cli.options import OUTPUT
from tokenpeak.errors import ExitStatus, LoadError
from tokenpeak.terminal import echo, echo_lines

if TYPE_CHECKING:
    from tokenpeak.loadgen.http.server import Server
    from tokenpeak.records.quality import QualityVerdict

Command = TypeVar("Command", bound=Callable[..., Any])

STATUSES = {"pass": ExitStatus.GOOD, "fail": ExitStatus.MISSED, "unknown": ExitStatus.INVALID}
_TASKS = click.option("--tasks", type=click.Path(path_type=Path), help="Labelled tasks of your own, a JSON line each.")


def _server_options(command: Command) -> Command:
    """The options that both commands of a server have."""
    for option in (
        click.option("--insecure", is_flag=True, help="Do not check the server's certificate."),
        click.option("--ca-file", type=click.Path(path_type=Path), help="Certificates to trust besides the system's."),
        click.option("--api-key-file", type=click.Path(path_type=Path), help="A file that holds the API key."),
        click.option("--model", required=True, help="The name that requests ask for."),
    ):
        command = option(command)
    return command


@click.group(short_help="Measure whether a server's answers are as good as a reference's.")
def quality() -> None:
    """Measure whether a vLLM server answers as well as a reference: the same model at full precision, say.

    A sweep does this by itself. For servers that no sweep launched, record the reference once, then compare servers
    that run it in another precision, with a draft model or by another release of vLLM.
    """


@quality.command(short_help="Record the answers of the server at URL as the reference.")
@click.argument("url")
@_server_options
@_TASKS
@click.option("--tokens", type=click.IntRange(10_000), help="Tokens that a measurement processes; 60,000 unless given.")
@click.option("--output", required=True, type=OUTPUT, help="Where the answers are written: a .json file.")
def record(url: str, model: str, tokens: int | None, tasks: Path | None, output: Path, **given: Any) -> None:
    """Have the server at URL answer the built-in questions, and measure how much another batch changes its answers."""
    from tokenpeak.files import write_atomically
    from tokenpeak.quality.answers import floor_of, written
    from tokenpeak.quality.measure import measure
    from tokenpeak.quality.verdict import Reference, judge
    from tokenpeak.records.quality import QualityPasses
    from tokenpeak.spec.quality import MARGIN_NATS, TOKENS, QualityJob

    measured = measure(_server(url, given), model, QualityJob(tokens=tokens or TOKENS, passes=2, tasks=tasks))
    if not measured.passes:
        raise LoadError(f"The answers could not be measured: {measured.measurement.problem}")
    write_atomically(output, written(QualityPasses(passes=measured.passes), output))
    first, again = measured.passes
    own = judge(again, None, Reference(answers=first, floor=floor_of(first, [again], ())), MARGIN_NATS)
    right = sum(answer.right for answer in first.answers)
    echo(
        f"{output}: {len(first.texts)} texts and {len(first.answers)} answers, {right} of them right; "
        f"{measured.measurement.duration_s:.0f} s for two passes"
    )
    if own.status != "pass":
        echo(f"WARNING nothing can pass against it: {own.reason}")


@quality.command(short_help="Compare the server at URL with recorded answers.")
@click.argument("url")
@click.argument("reference", type=click.Path(path_type=Path))
@_server_options
@_TASKS
@click.option("--margin", type=click.FloatRange(0, min_open=True), help="Nats a token above the noise floor; 0.02.")
@click.option("--output", type=OUTPUT, help="Where the verdict is written, as JSON.")
def compare(
    url: str, reference: Path, model: str, tasks: Path | None, margin: float | None, output: Path | None, **given: Any
) -> None:
    """Measure how the answers of the server at URL agree with REFERENCE, and say whether they pass.

    The exit status is 0 where they pass, 3 where they fail and 4 where it cannot be known.
    """
    from tokenpeak.files import write_atomically
    from tokenpeak.quality.answers import floor_of, read_passes
    from tokenpeak.quality.measure import measure
    from tokenpeak.quality.verdict import Reference, judge
    from tokenpeak.spec.quality import MARGIN_NATS, QualityJob

    first, *again = read_passes(reference).passes
    job = QualityJob(tokens=first.budget_tokens, context=first.context, tasks=tasks)
    measured = measure(_server(url, given), model, job)
    known = Reference(answers=first, floor=floor_of(first, again, ()))
    answers = measured.passes[0] if measured.passes else None
    verdict = judge(answers, measured.measurement.problem, known, margin or MARGIN_NATS)
    if output is not None:
        write_atomically(output, verdict.model_dump_json(indent=1) + "\n")
    echo_lines(_lines(verdict))
    if answers is not None:
        echo(f"took {measured.measurement.duration_s:.1f} s, {measured.measurement.tokens:,} tokens")
    sys.exit(STATUSES[verdict.status])


@quality.command(name="lm-eval", short_help="Compare the samples that lm-eval logged of two servers.")
@click.argument("reference", type=click.Path(path_type=Path, exists=True))
@click.argument("candidate", type=click.Path(path_type=Path, exists=True))
@click.option("--metric", help="The metric that says right or wrong; the first of exact_match, acc and acc_norm.")
@click.option("--margin", type=click.FloatRange(0, 100, min_open=True), default=1.0, show_default=True, help="Points.")
def lm_eval(reference: Path, candidate: Path, metric: str | None, margin: float) -> None:
    """Compare two folders that lm-eval wrote with --log_samples, sample by sample, and say whether CANDIDATE passes.

    It fails where more samples became wrong than right by more than chance (exact McNemar, p < 0.01), passes where the
    99% interval of the difference is above minus the margin, and is unknown otherwise. The exit status is as compare's.
    """
    from tokenpeak.quality.answers import read_lm_eval
    from tokenpeak.quality.verdict import paired

    verdict = paired(read_lm_eval(reference, metric), read_lm_eval(candidate, metric), margin=margin / 100)
    echo(f"{verdict.status}: {verdict.reason}")
    sys.exit(STATUSES[verdict.status])


def _lines(verdict: "QualityVerdict") -> list[str]:
    """The verdict in words, and the figures behind it."""
    lines = [f"{verdict.status}: {verdict.reason}"]
    rows = {
        "divergence from the reference": verdict.kl,
        "divergence of generated answers": verdict.answer_kl,
        "divergence over a long context": verdict.long_kl,
        "regret of generated tokens": verdict.regret,
    }
    for name, figure in rows.items():
        if figure is not None:
            lines.append(f"  {name:32} {figure.estimate:8.4f} nats a token ({figure.low:.4f} to {figure.high:.4f})")
    if verdict.top1_agreement is not None:
        lines.append(f"  {'same likeliest token':32} {verdict.top1_agreement.estimate:8.1%}")
    if (figure := verdict.log_ratio) is not None:
        ends = f"({exp(figure.low):.4f} to {exp(figure.high):.4f})"
        lines.append(f"  {'ratio of perplexities':32} {exp(figure.estimate):8.4f} {ends}")
    if verdict.tasks_right is not None:
        tasks = f"{verdict.tasks_right} of {verdict.tasks}, the reference's {verdict.reference_tasks_right}"
        lines.append(f"  {'right answers':32} {tasks:>8}")
    return lines


def _server(url: str, given: dict[str, Any]) -> "Server":
    from tokenpeak.loadgen.http.server import Server

    key_file: Path | None = given["api_key_file"]
    try:
        key = key_file.read_text().strip() if key_file is not None else None
    except OSError as error:
        raise LoadError(f"The API key's file cannot be read: {error}") from error
    return Server(url, api_key=key, verify=not given["insecure"], ca_file=given["ca_file"])
