"""Progress of a load on a terminal: a bar while it runs, a table when it has ended."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tokenpeak.console import SafeConsole
from tokenpeak.loadgen.job import OnStatus, Status
from tokenpeak.node.machine.words import one_line
from tokenpeak.records import Distribution, RunRecord, RunSummary
from tokenpeak.spec.workload import ExternalWorkload, PoolingWorkload
from tokenpeak.terminal import echo


@contextmanager
def watching() -> Iterator[OnStatus]:
    """Shows each status: as a bar on a terminal, as a line per phase elsewhere."""
    console = SafeConsole(stderr=True)
    if not console.is_terminal:
        last: list[tuple[str, str]] = []

        def show_line(status: Status) -> None:
            if last[-1:] != [(status.level_label, status.phase)]:
                last.append((status.level_label, status.phase))
                echo(f"{status.level_label}: {status.phase}", err=True)

        yield show_line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rates]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None, rates="")

        def show(status: Status) -> None:
            rates = "" if status.output_tok_per_s is None else f"~{status.output_tok_per_s:,.0f} tok/s"
            if status.ttft_s_p50 is not None:
                rates += f"  TTFT p50 {status.ttft_s_p50 * 1e3:.0f} ms"
            progress.update(
                task,
                description=f"{status.level_label} {status.phase}",
                completed=status.requests_done,
                total=status.requests_total,
                rates=rates,
            )

        yield show


_HEADS = ("mean", "std", "p25", "p50", "p75", "p90", "p95", "p99")


def _line(title: str, distribution: Distribution, scale: float, unit: str) -> str:
    values = (getattr(distribution, head) for head in _HEADS)
    cells = "".join(f"{'–' if value is None else format(value * scale, '.2f'):>10}" for value in values)
    return f"{title:24}{cells}  {unit}"


def summary_text(record: RunRecord) -> str:
    """A run in words and numbers. What an engine, a workload or a level is called or said ends no line of it."""
    return "\n".join(map(one_line, _lines(record)))


def _count(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"


def _window(summary: RunSummary) -> list[str]:
    """Which part of the run throughput is over, where that is not all of it."""
    if summary.steady_from_s is None or summary.steady_to_s is None:
        return []
    return [f"{'':25}from {summary.steady_from_s:,.1f} to {summary.steady_to_s:,.1f} s, between ramp and drain"]


def _prefix_hits(record: RunRecord) -> list[str]:
    """The share of prompt tokens that the engine's prefix cache served, beside what the workload is to reach."""
    hit_rate = record.engine.prefix_cache_hit_rate if record.engine is not None else None
    intended = None if isinstance(record.workload, ExternalWorkload) else record.workload.intended_hit_rate
    if hit_rate is None:
        return []
    return [f"Prefix cache             {hit_rate:.1%} hit" + (f", {intended:.1%} intended" if intended else "")]


def _lines(record: RunRecord) -> list[str]:
    summary, client = record.summary, record.client

    def number(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
        return "–" if value is None else f"{value * scale:,.{digits}f}"

    lines = [
        f"{record.workload.name} at {record.level_label}: {summary.requests_ok} of {summary.requests_sent} requests "
        f"ended well in {summary.duration_s:.1f} s",
    ]
    lines += [
        f"  {count} × {kind}: {record.failure_messages.get(kind, '')}".rstrip(": ")
        for kind, count in summary.failures.items()
    ]
    if not summary.requests_ok:
        # No table of dashes: there is nothing to show of no request.
        return [*lines, *_verdict(record)]
    lines += [
        "",
        *_rates(record, number),
        *_prefix_hits(record),
        "",
        f"{'':24}{''.join(f'{head:>10}' for head in _HEADS)}",
        *_distributions(record),
        "",
        f"Client: {client.processes} process(es), {number(client.cpu_per_token_s, 1e6, 1)} µs CPU per token, dispatch "
        f"{number(client.dispatch_delay_s.p99, 1e3)} ms late (p99), loop {number(client.loop_lag_s.p99, 1e3)} ms (p99)",
    ]
    if record.max_rate is not None:
        search = record.max_rate
        lines.append(
            f"Highest rate within the SLO: {number(search.rate_per_s)} /s, {search.confidence:.0%} within "
            f"{number(search.low_per_s)} to {number(search.high_per_s)} ({search.ended}, {len(search.probes)} probes)"
        )
        lines += [
            f"  {probe.rate_per_s:10.2f} /s  {probe.requests:6d} requests  {'holds' if probe.holds else 'missed':6}"
            f"  goodput {number(probe.goodput_request_per_s)} /s  "
            + ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in probe.metrics.items())
            for probe in sorted(search.probes, key=lambda probe: probe.rate_per_s)
        ]
    if record.slo_met is not None:
        counts = [f"{count} of {summary.requests_sent} within {name}" for name, count in summary.within_limits.items()]
        lines.append(f"SLO: {'met' if record.slo_met else 'missed'}{': ' if counts else ''}{', '.join(counts)}")
    return [*lines, *_verdict(record)]


def _rates(record: RunRecord, number: Callable[[float | None], str]) -> list[str]:
    """Throughput and tokens; of a pooling model, texts in place of output tokens."""
    summary, workload = record.summary, record.workload
    window = _window(summary)
    read = f"Input                    {number(summary.input_tok_per_s)} tok/s"
    requests = f"Requests                 {number(summary.request_per_s)} /s"
    tokens = f"Tokens                   {_count(summary.input_tokens)} in"
    if isinstance(workload, PoolingWorkload):
        texts = None if summary.request_per_s is None else summary.request_per_s * workload.inputs
        return [read, *window, requests, f"Texts                    {number(texts)} /s", tokens]
    output = (
        f"Output, all requests     {number(summary.output_tok_per_s)} tok/s (peak of one second "
        f"{number(summary.peak_output_tok_per_s)})"
    )
    return [output, *window, read, requests, f"{tokens}, {_count(summary.output_tokens)} out"]


def _distributions(record: RunRecord) -> list[str]:
    """A line for each metric over requests; of a pooling model, which has no tokens to wait for, the latency."""
    summary = record.summary
    latency = _line("End-to-end latency", summary.latency_s, 1e3, "ms")
    if isinstance(record.workload, PoolingWorkload):
        return [latency]
    return [
        _line("Time to first token", summary.ttft_s, 1e3, "ms"),
        *([_line("First answer token", summary.ttfat_s, 1e3, "ms")] if summary.ttfat_s.n else []),
        _line("Time per output token", summary.tpot_s, 1e3, "ms"),
        _line("Inter-token latency", summary.itl_s, 1e3, "ms"),
        latency,
        _line("Output of one request", summary.request_output_tok_per_s, 1, "tok/s"),
    ]


def _verdict(record: RunRecord) -> list[str]:
    return [f"Verdict: {record.verdict.status}", *(f"  {each.code}: {each.text}" for each in record.verdict.reasons)]
