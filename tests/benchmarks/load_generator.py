"""Benchmark of the load generator: accuracy and CPU per token against their limits. `make bench`.

The test server runs on the same machine in the same minute; so does `vllm bench serve`, which takes some minutes. The
rate search is judged by tests/loadgen.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks import vllm_bench_serve
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.loadgen.run import run_job
from tokenpeak.loadgen.test_server import local_test_server
from tokenpeak.records import RunRecord

TTFT_S = 0.050
ITL_S = 0.020
STREAMS = 256
TOKENS = 64
ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Line:
    """A figure of the table: what was measured, its limit, and whether less is better."""

    what: str
    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def reached(self) -> bool:
        """Whether the limit is held."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def _run(url: str, level: dict[str, object], output_tokens: int, **keys: object) -> RunRecord:
    workload = {"kind": "synthetic", "name": "bench", "input_tokens": 128, "output_tokens": output_tokens}
    with tempfile.TemporaryDirectory() as folder:
        run = {"run_index": 0, "workload": workload, "level": level, **keys}
        job = {"base_url": url, "model": "timetable", "output_dir": Path(folder), "runs": [run]}
        return run_job(LoadJob.model_validate(job))[0]


def _value(value: float | None) -> float:
    return float("nan") if value is None else value


def _server_late(url: str) -> str:
    late = httpx.get(f"{url}/stats").json()
    return f"server itself late p50 {late['p50_s'] * 1e3:.2f}, p99 {late['p99_s'] * 1e3:.2f} ms"


def streams() -> Iterator[Line | str]:
    """256 and 1,024 streams against the timetable."""
    with local_test_server(TTFT_S, ITL_S) as url:
        record = _run(url, {"concurrency": STREAMS, "requests": STREAMS * ROUNDS}, TOKENS)
        late = _server_late(url)
        summary = record.summary
        yield Line(
            what="256 streams: TTFT error p50", value=(_value(summary.ttft_s.p50) - TTFT_S) * 1e3, limit=2, unit="ms"
        )
        yield Line(
            what="256 streams: TTFT error p99", value=(_value(summary.ttft_s.p99) - TTFT_S) * 1e3, limit=5, unit="ms"
        )
        yield Line(
            what="256 streams: ITL error p99", value=(_value(summary.itl_s.p99) - ITL_S) * 1e3, limit=3, unit="ms"
        )
        yield Line(what="CPU per token", value=_value(record.client.cpu_per_token_s) * 1e6, limit=12, unit="µs")
        yield late
        record = _run(url, {"concurrency": 1024, "requests": 2048}, 100)
        late = _server_late(url)
        summary = record.summary
        truth = TTFT_S + 99 * ITL_S
        yield Line(
            what="1,024 streams × 50 tok/s: sustained",
            value=100 * truth / _value(summary.latency_s.mean),
            limit=98,
            unit="%",
            at_least=True,
        )
        yield Line(
            what="1,024 streams: TTFT error p99",
            value=(_value(summary.ttft_s.p99) - TTFT_S) * 1e3,
            limit=10,
            unit="ms",
        )
        yield late


def rate() -> Iterator[Line | str]:
    """An open loop at 200 requests a second."""
    with local_test_server(TTFT_S, ITL_S) as url:
        record = _run(url, {"rate_per_s": 200, "requests": 2000, "warmup_requests": 100}, 16)
    yield Line(
        what="open loop at 200/s: dispatch delay p99",
        value=_value(record.client.dispatch_delay_s.p99) * 1e3,
        limit=2,
        unit="ms",
    )


def vllm() -> Iterator[Line | str]:
    """The client and `vllm bench serve` in turns against vLLM on this machine's CPU."""
    found = vllm_bench_serve.installed()
    if found is None:
        yield "vllm bench serve: skipped, no engine here (`tokenpeak sweep --inventory cpu` installs one)"
        return
    yield from vllm_bench_serve.lines(found)


def main() -> int:
    """Print the table; exit status 1 when a limit was missed."""
    missed = 0
    for part in (streams, rate, vllm):
        for line in part():
            if isinstance(line, str):
                text = f"    {line}"
            else:
                sign = "≥" if line.at_least else "≤"
                mark = "ok" if line.reached else "MISSED"
                missed += not line.reached
                text = f"{line.what:48} {line.value:9.2f} {line.unit:7} must be {sign} {line.limit:g}  {mark}"
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
