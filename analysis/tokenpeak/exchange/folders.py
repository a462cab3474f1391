"""Result folders of tuners: `vllm bench sweep serve` and auto_tune.sh."""

import re
from collections.abc import Iterable
from itertools import dropwhile
from pathlib import Path

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange import vllm_bench
from tokenpeak.exchange.engine_flags import engine_flags
from tokenpeak.exchange.foreign import ForeignRun
from tokenpeak.exchange.reading import read_json, read_text
from tokenpeak.spec.load import ExternalLoad

BENCH_KEYS = frozenset(
    {
        "max_concurrency", "request_rate", "num_prompts", "burstiness", "random_input_len", "random_output_len",
        "input_len", "output_len", "dataset_name", "seed",
    }
)  # fmt: skip
"""Keys that ask for a load even where the folder's name does not say so."""
REPEATS = (
    "vllm bench sweep repeats a load within one launch: what stands here as launches are repeats of one launch, so "
    "their spread leaves out what a relaunch changes."
)
RUN_NUMBER, OWN_NAME = "run_number", "_benchmark_name"
BM_LOG = re.compile(r"bm_log_(?P<seqs>\d+)_(?P<tokens>\d+)_requestrate_(?P<rate>inf|\d+)\.txt")
TUNED = re.compile(r"max_num_seqs: (\d+), max_num_batched_tokens: (\d+)(?:, request_rate: (inf|\d+)| does not meet)")
LARGEST_FOLDER = 20_000
"""Files beyond which a folder is no result of a tuner."""


def is_vllm_sweep(folder: Path) -> bool:
    """The folder holds `vllm bench sweep serve`'s runs."""
    return any(True for _ in folder.glob("**/run=*.json"))


def is_auto_tune(folder: Path) -> bool:
    """The folder holds auto_tune.sh's result and logs."""
    return (folder / "result.txt").is_file() and any(BM_LOG.fullmatch(path.name) for path in folder.iterdir())


def read_vllm_sweep(folder: Path) -> tuple[list[ForeignRun], list[str], list[Path]]:
    """Every measured run of a sweep, what has no place, and the files read; summaries only repeat runs."""
    runs: list[ForeignRun] = []
    unread: list[str] = []
    files = sorted(folder.glob("**/run=*.json"))
    if len(files) > LARGEST_FOLDER:
        raise ArchiveError(f"{folder}: {len(files):,} runs, more than a sweep has. Import one experiment.")
    for path in files:
        if path.name.endswith(".failure.json"):
            continue
        server, _, load = path.parent.name.removeprefix("SERVE--").partition("BENCH--")
        for fields, raw in vllm_bench.read_results(path):
            keys = [key for key in _after(raw, RUN_NUMBER) if f"{key}=" not in load]
            own = engine_flags(raw, [key for key in keys if key.lstrip("-").replace("-", "_") not in BENCH_KEYS])
            named = "" if "=" in server or OWN_NAME not in raw else server.strip("-")
            fields.ignore([OWN_NAME, *own.keys])
            run = vllm_bench.run_of(
                fields,
                flags=own.flags,
                choices=own.choices,
                config=named or own.config,
                # Its run numbers count measurements of one launch; a trial of ours holds each load level once.
                replicate=fields.count(RUN_NUMBER),
            )
            runs.append(run)
            unread += fields.unread()
    for path in sorted(folder.glob("**/*failure.json")):
        raw = read_json(path)
        words = raw.get("error_type", "error") if isinstance(raw, dict) else "error"
        unread.append(f"{path.parent.name}/{path.name}: a run that failed ({words})")
    if not runs:
        raise ArchiveError(f"{folder}: no run of the sweep was measured.")
    return runs, unread, files


def _after(keys: Iterable[str], last: str) -> list[str]:
    return list(dropwhile(lambda key: key != last, keys))[1:]


def read_auto_tune(folder: Path) -> tuple[list[ForeignRun], list[str], list[Path]]:
    """Each benchmark log of a tuning, with whether auto_tune.sh found its latency within the limit."""
    within: dict[tuple[str, str, str], bool] = {}
    result = folder / "result.txt"
    for seqs, tokens, rate in TUNED.findall(read_text(result)):
        within[seqs, tokens, rate] = bool(rate)
    runs: list[ForeignRun] = []
    unread: list[str] = []
    files = [result]
    for path in sorted(folder.iterdir()):
        name = BM_LOG.fullmatch(path.name)
        if name is None:
            continue
        text = read_text(path)
        if not vllm_bench.holds_block(text):
            unread.append(f"{path.name}: a benchmark that printed no result")
            continue
        before, block = text.split(vllm_bench.HEAD, 1)
        seqs, tokens, rate = name["seqs"], name["tokens"], name["rate"]
        held = within.get((seqs, tokens, rate))
        gave_up = (seqs, tokens, "") in within
        run, labels = vllm_bench.printed_run(
            block,
            path,
            before,
            flags={"max_num_seqs": int(seqs), "max_num_batched_tokens": int(tokens)},
            choices={"max_num_seqs": seqs, "max_num_batched_tokens": tokens},
            config=f"max_num_seqs={seqs}, max_num_batched_tokens={tokens}",
            level=ExternalLoad(external=True, rate_per_s=None if rate == "inf" else float(rate) or None),
            # It lowers the rate until the limit holds: what came before the rate in result.txt did not.
            slo_met=True if held else False if within and (gave_up or held is None) else None,
        )
        runs.append(run)
        unread += labels
        files.append(path)
    if not runs:
        raise ArchiveError(f"{folder}: no benchmark log of auto_tune.sh holds a result.")
    return runs, unread, files
