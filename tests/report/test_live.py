"""The site of a running sweep: built again as trials land, and served."""

import threading
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from archive_factory import make_archive, trial_record
from tokenpeak.cli.serve import serve
from tokenpeak.report import live, open_archive
from tokenpeak.report.progress import progress
from tokenpeak.store.raw import Archive


def test_progress_counts_what_landed(tmp_path: Path) -> None:
    """A config without a trial waits; one with a trial shows its value."""
    archive = make_archive(
        tmp_path / "sweep", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8, 64]}, replicates=0, end=False
    )
    view = open_archive(archive.path)
    planned = view.record.plans[0].feasible[0]
    trial, _ = trial_record(view.spec, sweep_id="sweep", node=view.record.nodes[0], planned=planned, seconds=3)
    archive.write_trial(trial)
    found = progress(open_archive(archive.path))

    assert (1, 2) == (found.done, found.planned)
    assert ["ok", "waiting"] == [row["cells"][0]["state"] for row in found.rows]


def test_port_that_is_none_is_refused(tmp_path: Path) -> None:
    """A number that is no port is answered with those that are, not with a traceback."""
    found = CliRunner().invoke(serve, ["--output", str(tmp_path), "--port", "99999"])

    assert 2 == found.exit_code
    assert "99999 is not in the range 0<=x<=65535" in found.output


def test_a_trial_that_lands_changes_the_site(tmp_path: Path) -> None:
    """While it watches, a new trial gets its page; the server hands it out."""
    archive = make_archive(tmp_path / "sweep", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, replicates=0, end=False)
    site = tmp_path / "site"
    site.mkdir()
    stop, built = threading.Event(), threading.Semaphore(0)
    watching = threading.Thread(
        target=live.watch,
        args=([archive.path], site),
        kwargs={"node_names": False, "stop": stop, "say": lambda _: built.release()},
    )
    listening = live.server(site, "127.0.0.1", 0)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    watching.start()
    try:
        assert built.acquire(timeout=60)
        add_trial(archive)
        assert built.acquire(timeout=60)
        address = f"http://127.0.0.1:{listening.server_address[1]}/live.html"
        with urllib.request.urlopen(address, timeout=10) as answer:
            page = answer.read().decode()
    finally:
        stop.set()
        watching.join(timeout=60)
        listening.shutdown()
        listening.server_close()

    assert "1 of 1 trials" in page


def add_trial(archive: Archive) -> None:
    """A trial of the archive's first config."""
    view = open_archive(archive.path)
    planned = view.record.plans[0].feasible[0]
    trial, _ = trial_record(view.spec, sweep_id="sweep", node=view.record.nodes[0], planned=planned, seconds=3)
    archive.write_trial(trial)
