"""The site of a running sweep: built again as trials land, and served."""

import http.client
import threading
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from archive_factory import make_archive, trial_record
from tokenpeak.report import open_archive
from tokenpeak.report.site import live
from tokenpeak.store.archive import Archive


@pytest.mark.usefixtures("few_pages")
def test_a_trial_that_lands_changes_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it watches, a new trial gets its page; the server hands it out."""
    monkeypatch.setattr(live, "LOOK_S", 0.05)
    archive = make_archive(tmp_path / "sweep", gpus=["NVIDIA L4"], axes={"max_num_seqs": [8]}, replicates=0, end=False)
    site = tmp_path / "site"
    site.mkdir()
    stop, built = threading.Event(), threading.Semaphore(0)
    watching = threading.Thread(
        target=live.watch,
        args=([archive.path], site),
        kwargs={"node_names": False, "stop": stop, "say": lambda _: built.release()},
    )
    listening = live.server(site, "127.0.0.1", 0, lambda: b"")
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    watching.start()
    try:
        assert built.acquire(timeout=60)
        add_trial(archive)
        assert built.acquire(timeout=60)
        address = f"http://127.0.0.1:{listening.server_address[1]}/live.html"
        with urllib.request.urlopen(address, timeout=10) as answer:
            page = answer.read().decode()
        front = (site / "index.html").read_text()
    finally:
        stop.set()
        watching.join(timeout=60)
        listening.shutdown()
        listening.server_close()

    assert "1 of 1 trials" in page
    assert '<a href="live.html">how far sweep is</a>' in front


def test_what_is_not_built_yet_is_awaited(tmp_path: Path) -> None:
    """Start page and live page answer at once and load themselves again; every other page is not there."""
    listening = live.server(tmp_path, "127.0.0.1", 0, lambda: b"")
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    port = listening.server_address[1]
    try:
        answers = {path: asked(port, path, f"localhost:{port}") for path in ("/", "/live.html", "/compare.html")}
        (tmp_path / "index.html").write_text("the site")
        built = asked(port, "/", f"localhost:{port}")
    finally:
        listening.shutdown()
        listening.server_close()

    assert {"/": 503, "/live.html": 503, "/compare.html": 404} == {path: answers[path][0] for path in answers}
    assert all('http-equiv="refresh"' in answers[path][1] for path in ("/", "/live.html"))
    assert (200, "the site") == built[:2]


def add_trial(archive: Archive) -> None:
    """A trial of the archive's first config."""
    view = open_archive(archive.path)
    planned = view.record.plans[0].feasible[0]
    trial, _ = trial_record(view.spec, sweep_id="sweep", node=view.record.nodes[0], planned=planned, seconds=3)
    archive.write_trial(trial)


def asked(port: int, path: str, host: str | None) -> tuple[int, str, Message]:
    """Status, content and headers of one request with this Host header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    response = connection.getresponse()
    return response.status, response.read().decode(), response.headers


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A served site with a page, a folder without one, a hidden file, and links that lead out."""
    tmp_path = tmp_path_factory.mktemp("served")
    site = tmp_path / "site"
    (site / "data").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for path in ("site/index.html", "site/data/rows.csv", "site/.hidden", "outside/secret.txt"):
        (tmp_path / path).write_text("the content")
    (site / "link.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (site / "way").symlink_to(tmp_path / "outside")
    listening = live.server(site, "127.0.0.1", 0, lambda: b"")
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield listening.server_address[1]
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_own_names_are_answered(port: int, host: str) -> None:
    """The site is there by this server's own names, guarded against being framed, sniffed or read by others."""
    status, content, headers = asked(port, "/data/rows.csv", f"{host}:{port}")

    assert (200, "the content") == (status, content)
    assert "nosniff" == headers["X-Content-Type-Options"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:1", "", None, "[::1", "10.0.0.1"]
)
def test_foreign_host_is_refused(port: int, host: str | None) -> None:
    """A name that somebody else made to lead here gets no page."""
    assert 421 == asked(port, "/", host)[0]


@pytest.mark.parametrize(
    "path",
    [
        "/data/",
        "/link.txt",
        "/way/secret.txt",
        "/.hidden",
        "/../outside/secret.txt",
        "/%2e%2e/outside/secret.txt",
        "/way/",
    ],
)
def test_nothing_but_pages_is_served(port: int, path: str) -> None:
    """Folders are not listed, and neither links, dots nor hidden names lead anywhere."""
    status, content, _ = asked(port, path, f"localhost:{port}")

    assert 404 == status
    assert "the content" not in content
    assert "rows.csv" not in content
