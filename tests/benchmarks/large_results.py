"""What large results cost: seconds and memory of the site, of one more trial, of the load into Postgres, of exports.

`python -m benchmarks.large_results --trials 20000 --requests-per-trial 1000` makes synthetic archives (the factory of
the tests) below `--folder`, which is emptied afterwards, and prints a table. `--sweeps 1` puts all trials into one
sweep. It takes tens of minutes and, for 20,000 trials with a thousand requests each, 20 GB of disk.
"""

import argparse
import importlib
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

from benchmarks.process_memory import peak_memory
from tokenpeak import paths
from tokenpeak.store.archive import Archive
from tokenpeak.store.database import choose, migrations, open_database
from tokenpeak.store.tables import TABLES
from tokenpeak.store.views import views

TOKENPEAK = Path(sys.executable).with_name("tokenpeak")
GPUS = ("NVIDIA A100-SXM4-80GB", "NVIDIA L4")
REPLICATES, RUNS = 2, 4
FLAGS: dict[str, tuple[object, ...]] = {
    "max_num_seqs": (16, 32, 64, 128, 256),
    "max_num_batched_tokens": (512, 1024, 2048, 4096, 8192),
    "gpu_memory_utilization": (0.8, 0.85, 0.9, 0.92, 0.95),
    "enforce_eager": (True, False),
    "block_size": (8, 16, 32, 64, 128),
    "max_model_len": (1024, 2048, 4096, 8192),
}
PARTS = ("site", "database", "export")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a command took."""

    seconds: float
    processor_s: float
    """Of all its processes: on a machine with other work this says more than the clock."""
    memory_bytes: int
    """The most that its processes held together at a time, memory that they share counted once."""


def axes_for(trials: int) -> dict[str, Sequence[object]]:
    """Axes whose configs make at most so many trials of a sweep."""
    room = max(1, trials // (len(GPUS) * REPLICATES))
    axes: dict[str, Sequence[object]] = {}
    for flag, values in FLAGS.items():
        count = min(len(values), room)
        if count > 1 or not axes:
            axes[flag] = values[:count]
            room //= count
    return axes


def make_sweep(folder: Path, number: int, trials: int, requests_per_trial: int) -> int:
    """Write the archive of one sweep; returns how many trials it has."""
    sys.path.append(str(paths.ROOT / "tests"))
    factory = importlib.import_module("archive_factory")
    # Nothing here has to survive a power loss, and to wait for the disk takes half of the time.
    os.fsync = lambda fd: None
    started_at = factory.START + timedelta(days=number)
    archive = factory.make_archive(
        folder / f"{started_at:%Y%m%d-%H%M%S}-large-sim",
        axes=axes_for(trials),
        gpus=GPUS,
        replicates=REPLICATES,
        requests=requests_per_trial // RUNS,
        started_at=started_at,
        seed=number,
    )
    return sum(1 for _ in archive.path.glob("trials/*-*.json"))


def add_trial(archive: Archive) -> None:
    """One more launch of the config that was launched last."""
    last = archive.read_trial(max(path.stem for path in archive.path.glob("trials/*-*.json")))
    number = int(last.trial_id.partition("-")[0]) + 1
    again = last.model_copy(
        update={
            "trial_id": f"{number:04d}-{last.config.config_id[:8]}",
            "replicate": last.replicate + 1,
            "started_at": last.started_at + timedelta(seconds=90),
        }
    )
    requests = archive.requests_path(last.trial_id)
    archive.write_trial(again, requests if requests.is_file() else None, archive.read_log(last.trial_id) or "")


def run(*command: object) -> Spent:
    """Run a command of `tokenpeak`."""
    began, before = time.monotonic(), _processor_s()
    process = subprocess.Popen([TOKENPEAK, *map(str, command)], stdout=subprocess.DEVNULL)
    memory_bytes = peak_memory(process)
    if process.returncode:
        raise SystemExit(f"tokenpeak {command[0]} failed.")
    seconds = time.monotonic() - began
    return Spent(seconds=seconds, processor_s=_processor_s() - before, memory_bytes=memory_bytes)


def _processor_s() -> float:
    """What the commands that have ended used of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured_site(results: Path, site: Path) -> Iterator[tuple[str, str]]:
    """Rows of the site: all of it, again as it is, and with one more trial."""
    built = run("report", results, "--output", site)
    pages = list(site.rglob("*.html"))
    largest = max(pages, key=lambda page: page.stat().st_size)
    yield "site", words(built)
    yield "its pages", f"{len(pages):,}, the largest {largest.name} with {largest.stat().st_size / 1e6:.1f} MB"
    yield "site again, nothing new", words(run("report", results, "--output", site))
    add_trial(Archive(max(results.iterdir())))
    yield "site again, one more trial", words(run("report", results, "--output", site))


def measured_database(results: Path, state: Path) -> Iterator[tuple[str, str]]:
    """Rows of the load into Postgres, and of what its views take."""
    os.environ["TOKENPEAK_STATE"] = str(state)
    choice = choose()
    if choice.folder is None or not choice.folder.is_relative_to(state):
        raise SystemExit(f"This would fill the {choice.description}. Give a --folder that all users may enter.")
    with open_database(choice) as database:
        loaded = run("ingest", results)
        with psycopg.connect(database.url, autocommit=True) as connection:
            rows = sum(_count(connection, f"SELECT count(*) FROM {table.name}") for table in TABLES)
            yield "load into Postgres", f"{words(loaded)}, {rows:,} rows, {rows / loaded.seconds:,.0f} rows/s"
            sweep_id = max(path.name for path in results.iterdir())
            for which, condition in (("of one sweep", f" WHERE sweep_id = '{sweep_id}'"), ("of all sweeps", "")):
                seconds = {name: _query_s(connection, name, condition) for name in views(migrations())}
                slowest = max(seconds, key=lambda name: seconds[name])
                yield f"slowest view, rows {which}", f"{slowest} {seconds[slowest]:.2f} s"


def _count(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, "a count has a row"
    return int(row[0])


def _query_s(connection: psycopg.Connection, view: str, condition: str) -> float:
    """What Postgres takes to make every row and column of a view, without sending them."""
    query = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT * FROM {view}{condition}"
    row = connection.execute(query.encode()).fetchone()
    assert row is not None, "a plan has a row"
    return float(row[0][0]["Execution Time"]) / 1000


def measured_export(results: Path, output: Path) -> Iterator[tuple[str, str]]:
    """The row of the Parquet data set."""
    written = run("export", "--format", "hive", "--output", output, results)
    size = sum(path.stat().st_size for path in output.rglob("*.parquet"))
    yield "Parquet data set", f"{words(written)}, {size / 1e9:.2f} GB"


def words(spent: Spent) -> str:
    """Seconds by the clock and of processors, and memory."""
    return f"{spent.seconds:.1f} s ({spent.processor_s:.1f} s of processors), {spent.memory_bytes / 1e9:.2f} GB"


def main() -> None:
    """Make the archives, measure each part and print a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--requests-per-trial", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tokenpeak-large")
    parser.add_argument("--keep", action="store_true", help="keep the archives, and use those of before")
    given = parser.parse_args()
    folder: Path = given.folder.absolute()
    results = folder / f"results-{given.sweeps}-{given.trials}-{given.requests_per_trial}"
    os.environ["TOKENPEAK_STATE"] = str(folder / "state")
    trials = given.trials // given.sweeps
    say("processors, load", f"{os.cpu_count()}, {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    if not results.is_dir():
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            each = (
                itertools.repeat(results),
                range(given.sweeps),
                *map(itertools.repeat, (trials, given.requests_per_trial)),
            )
            made = sum(pool.map(make_sweep, *each))
        say("archives", f"{made:,} trials in {given.sweeps} sweeps, made in {time.monotonic() - began:.0f} s")
    parts = {
        "site": lambda: measured_site(results, folder / "site"),
        "database": lambda: measured_database(results, folder / "state"),
        "export": lambda: measured_export(results, folder / "exported"),
    }
    try:
        for part in given.part or PARTS:
            for name, found in parts[part]():
                say(name, f"{found} (load {os.getloadavg()[0]:.1f})")
    finally:
        for name in ("site", "state", "exported"):
            shutil.rmtree(folder / name, ignore_errors=True)
        if not given.keep:
            shutil.rmtree(results, ignore_errors=True)


def say(name: str, found: str) -> None:
    """Print a line of the table."""
    sys.stdout.write(f"{name:32} {found}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
