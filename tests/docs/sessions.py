"""Which page is worked through where, and what a reader has when beginning with it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.docs.reader import Reader
from tests.sim.running_engine import StartEngine

from tokenpeak import paths

ARCHIVE = paths.LANDSCAPES / "search-h100.tar.zst"
FIXTURES = paths.ROOT / "tests" / "exchange" / "fixtures"
Prepare = Callable[[Reader, StartEngine], None]


def nothing(_: Reader, __: StartEngine) -> None:
    """The reader has nothing yet."""


def an_archive(reader: Reader, _: StartEngine) -> None:
    """Somebody gave the reader an archive."""
    shutil.copy(ARCHIVE, reader.folder / ARCHIVE.name)


def others_results(reader: Reader, _: StartEngine) -> None:
    """Results of three other tools."""
    for written, real in {
        "vllm-bench.json": "vllm-plain.json",
        "guidellm.json": "guidellm.json",
        "profile_export_aiperf.json": "profile_export_aiperf.json",
    }.items():
        shutil.copy(FIXTURES / real, reader.folder / written)


def a_working_folder(reader: Reader, _: StartEngine) -> None:
    """A working folder for V100 machines."""
    reader.type("tokenpeak init my-gpus --like v100")
    reader.type("cd my-gpus")


def servers(reader: Reader, start: StartEngine) -> None:
    """Two servers of one model that are running already."""
    for port, name in ((8000, "llama-8b"), (8001, "llama-8b-fp8")):
        engine = start("--served-model-name", name, "--max-model-len", "8192").wait_ready()
        reader.stand_for[f"http://127.0.0.1:{port}"] = engine.url


def results(reader: Reader, _: StartEngine) -> None:
    """A folder with the archive of a sweep that ended."""
    shutil.copy(ARCHIVE, reader.folder / ARCHIVE.name)
    reader.type(f"mkdir -p results/search-h100 && tar --zstd -xf {ARCHIVE.name} -C results/search-h100")


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a page is worked through."""

    prepare: Prepare = nothing
    walk: str = ""
    """The walk in tests/walks that works through it; empty: no node is needed."""


SESSIONS: dict[str, Session] = {
    "tutorial/first-sweep": Session(),
    "tutorial/own-nodes": Session(walk="own_nodes"),
    "how-to/first-inventory": Session(walk="own_nodes"),
    "how-to/containers-behind-haproxy": Session(walk="platform_engineer"),
    "how-to/without-root": Session(walk="researcher"),
    "how-to/v100": Session(),
    "how-to/one-box": Session(),
    "how-to/rate-under-slo": Session(prepare=servers),
    "how-to/own-traffic": Session(prepare=servers),
    "how-to/own-prompts": Session(prepare=servers),
    "how-to/nightly-window": Session(prepare=a_working_folder),
    "how-to/ci-gate": Session(walk="ci_job"),
    "how-to/read-an-archive": Session(walk="analyst"),
    "how-to/own-question": Session(prepare=results),
    "how-to/database": Session(prepare=an_archive),
    "how-to/prune": Session(prepare=results),
    "how-to/other-tools": Session(walk="analyst"),
    "how-to/quality": Session(prepare=servers),
    "how-to/reach-nodes": Session(walk="own_nodes"),
    "how-to/load-hosts": Session(),
    "how-to/energy-factors": Session(prepare=an_archive),
    "how-to/publish": Session(prepare=an_archive),
    "reference/analysis": Session(),
    "explanation/predictions": Session(),
}
"""Page → its session."""
HERE = [page for page, session in SESSIONS.items() if not session.walk]


def walk_file(walk: str) -> Path:
    """Where a walk is."""
    return paths.ROOT / "tests" / "walks" / f"test_walk_{walk}.py"
