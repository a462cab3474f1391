"""Ranking: terminal, page, CSV and SQL say the same of every archive."""

import csv
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from archive_factory import make_archive
from tokenpeak.exchange.export import export_tables
from tokenpeak.report import open_archive
from tokenpeak.report.ranking.standings import rank
from tokenpeak.spec.sweep import Objective
from tokenpeak.store.archive import Archive
from tokenpeak.store.database import DatabaseChoice, open_database
from tokenpeak.store.embedded import running_server
from tokenpeak.store.frames import open_frames
from tokenpeak.sweep.terminal_summary import summary_lines

Ranks = list[tuple[str, int | None]]


@pytest.fixture(scope="module")
def database() -> Iterator[DatabaseChoice]:
    """An empty database."""
    folder = Path(tempfile.mkdtemp(prefix="tokenpeak-test-"))
    folder.chmod(0o755)
    with running_server(folder / "postgres") as conninfo:
        yield DatabaseChoice(description="test server", conninfo=conninfo)
    shutil.rmtree(folder)


def generated(path: Path, seed: int, metric: str) -> Archive:
    """Launches at random, of which some achieved nothing, some equal others, and some failed."""
    generator = np.random.default_rng(seed)
    axes = {"max_num_seqs": [8, 16, 32, 64], "enforce_eager": [True, False]}
    archive = make_archive(path, axes=axes, gpus=("NVIDIA L4",), replicates=2, seconds=2)
    record = archive.read_sweep()
    spec = open_archive(path).spec.model_copy(update={"objective": Objective(metric=metric)})
    (path / "sweep.json").unlink()
    archive.write_sweep(record.model_copy(update={"spec": spec.model_dump(mode="json")}))
    for trial in tuple(archive.trials()):
        value = float(generator.choice([0.0, 1.0, 2.0, generator.uniform(1, 3)]))
        runs = []
        for run in trial.runs:
            changes = {"goodput_request_per_s": value, "ttft_s": run.summary.ttft_s.model_copy(update={"p95": value})}
            runs.append(run.model_copy(update={"summary": run.summary.model_copy(update=changes)}))
        (path / "trials" / f"{trial.trial_id}.json").unlink()
        other = bool(generator.random() < 0.1)
        archive.write_trial(trial.model_copy(update={"runs": tuple(runs), "holdout": other}), None, "")
    return archive


def in_terminal(archive: Archive) -> Ranks:
    """Each config with its rank, as the end of a sweep prints it."""
    view = open_archive(archive.path)
    text = "\n".join(summary_lines(archive.read_sweep(), view.spec, tuple(archive.trials())))
    ranked = re.findall(r"^ *(\d+)  .*?  (\S+=\S+ \S+=\S+)(?:  |$)", text, re.MULTILINE)
    found: Ranks = [(name, int(place)) for place, name in ranked]
    return found + [
        (name, None) for name in re.findall(r"^not ranked  (.*): a launch achieved nothing", text, re.MULTILINE)
    ]


def on_the_page(archive: Archive) -> Ranks:
    """As the ranking's frame, which page and figure show."""
    view = open_archive(archive.path)
    frame = rank(view, view.hardware[0]).frame
    return [(row["config_name"], row["rank"]) for row in frame.iter_rows(named=True) if row["objective"] is not None]


def in_the_csv(archive: Archive) -> Ranks:
    """As exported."""
    folder = archive.path / "exported"
    export_tables(open_frames(archive.path), folder, "csv")
    with (folder / "configs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["objective_mean"]]
    return [(row["config_name"], int(row["rank"]) if row["rank"] else None) for row in rows]


def in_sql(archive: Archive, database: DatabaseChoice) -> Ranks:
    """As the public view has it."""
    with open_database(database) as opened:
        opened.ingest(open_frames(archive.path))
    query = "SELECT config_name, rank FROM tokenpeak.v_ranking WHERE sweep_id = %s AND objective_mean IS NOT NULL"
    with psycopg.connect(database.conninfo) as connection:
        return list(connection.execute(query, (archive.path.name,)).fetchall())


@pytest.mark.integration
@pytest.mark.parametrize(("seed", "metric"), [(1, "goodput_request_per_s"), (2, "ttft_s_p95"), (3, "ttft_s_p95")])
def test_all_rank_alike(tmp_path: Path, database: DatabaseChoice, seed: int, metric: str) -> None:
    """Best high or best low, with launches that achieved nothing: one ranking in all four places."""
    archive = generated(tmp_path / f"{metric}-{seed}", seed, metric)
    page = sorted(on_the_page(archive), key=str)
    decision = rank(view := open_archive(archive.path), view.hardware[0]).decision

    assert {None} < {place for _, place in page}
    assert page == sorted(in_terminal(archive), key=str)
    assert page == sorted(in_the_csv(archive), key=str)
    assert page == sorted(in_sql(archive, database), key=str)
    with psycopg.connect(database.conninfo) as connection:
        query = "SELECT decision, config_id, configs_tied FROM tokenpeak.v_decision WHERE sweep_id = %s"
        named = connection.execute(query, (archive.path.name,)).fetchall()
    assert named == [(decision.outcome, decision.config, len(decision.group))]
