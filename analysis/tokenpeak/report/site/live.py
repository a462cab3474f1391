"""The site while a sweep runs: built again as trials land, and served on this machine with metrics of the sweeps.

Prometheus finds them at /metrics, read from the archives at each scrape; analysis/examples/alerts.yml has alert rules.
"""

import functools
import io
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tokenpeak.errors import ArchiveError, IncompleteSiteError, ReportError
from tokenpeak.records import EndRecord, SweepRecord
from tokenpeak.report.site.build import WriteDocs, build_site
from tokenpeak.store.archive import Archive, find_readable

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SHOWN_FOR = timedelta(days=7)
"""How long a sweep that has ended is still shown."""
OF_SWEEPS = {
    "running": "No end is recorded: the sweep runs, or its controller died.",
    "interrupted": "The sweep ended before all its trials were made.",
    "trials": "Trials recorded.",
    "problems": "What went wrong, in how many sentences of the sweep's end.",
    "started_timestamp_seconds": "When it began.",
    "written_timestamp_seconds": "When its archive was last written to.",
    "ended_timestamp_seconds": "When its controller left it.",
}
OF_NODES = {
    "production_downtime_seconds": "How long production of the node did not serve for the sweep.",
    "production_not_back": "Production of the node was not seen to serve again when the sweep ended.",
    "node_left_out": "The node failed so often in a row that the sweep went on without it.",
}
_OF_NODE: dict[str, Callable[[EndRecord, str], float]] = {
    "production_downtime_seconds": lambda end, node: end.production_downtime_s.get(node, 0.0),
    "production_not_back": lambda end, node: float(node in end.unrestored),
    "node_left_out": lambda end, node: float(node in end.left_out_nodes),
}
LOOK_S = 2.0
"""Between two looks at the archives."""
SILENT_S = 10.0
"""Whoever connects and says nothing for so long, or reads nothing, is left."""
MOST_READERS = 100
"""Connections at a time; one more is closed."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""As the pages' own, and besides, no page of another site may frame them."""
_AWAITED = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="2">'
    "<title>TokenPeak</title><p>{}</p></html>"
)
AWAITED = {
    (): _AWAITED.format("The site is being built. This page loads itself again until it is there."),
    ("live.html",): _AWAITED.format(
        'No sweep runs, or its first pages are being built. This page loads itself again. <a href="/">All sweeps</a>'
    ),
}
"""Page, by the parts of its path → what is served in its place until it is there."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def exposition(paths: Sequence[Path], *, node_names: bool) -> bytes:
    """The metrics of the sweeps at or below the paths, in Prometheus' text format; nodes are numbered unless named."""
    registry = CollectorRegistry()
    of_sweeps, of_nodes = (
        {name: Gauge(f"tokenpeak_sweep_{name}", says, labels, registry=registry) for name, says in metrics.items()}
        for metrics, labels in ((OF_SWEEPS, ("sweep", "name", "inventory")), (OF_NODES, ("sweep", "inventory", "node")))
    )
    for archive, record, end in _recent(paths):
        for name, value in _of_sweep(archive, record, end).items():
            of_sweeps[name].labels(record.sweep_id, record.name, record.inventory).set(value)
        if end is None:
            continue
        for number, node in enumerate(record.nodes, start=1):
            shown = node.node if node_names else f"node {number}"
            for name, of_node in _OF_NODE.items():
                of_nodes[name].labels(record.sweep_id, record.inventory, shown).set(of_node(end, node.node))
    return generate_latest(registry)


def _recent(paths: Sequence[Path]) -> Iterator[tuple[Archive, SweepRecord, EndRecord | None]]:
    """The sweeps that run or ended not long ago; an archive that cannot be read now is left out."""
    try:
        archives, _ = find_readable(list(paths))
    except ArchiveError:
        return
    for archive in archives:
        try:
            record, end = archive.read_sweep(), archive.read_end()
        except ArchiveError:
            continue
        is_recent = end is None or datetime.now(UTC) - end.ended_at < SHOWN_FOR
        if record.imported is None and is_recent:
            yield archive, record, end


def _of_sweep(archive: Archive, record: SweepRecord, end: EndRecord | None) -> dict[str, float]:
    """The values of OF_SWEEPS that are known."""
    trials = [path for path in (archive.path / "trials").glob("*.json") if not path.name.startswith(".")]
    written = [path.stat().st_mtime for path in (archive.path / "sweep.json", *trials) if path.exists()]
    known = {
        "running": float(end is None),
        "interrupted": float(end is not None and end.status == "interrupted"),
        "trials": float(len(trials)),
        "started_timestamp_seconds": record.started_at.timestamp(),
        "written_timestamp_seconds": max(written, default=record.started_at.timestamp()),
    }
    if end is not None:
        known |= {"problems": float(len(end.problems)), "ended_timestamp_seconds": end.ended_at.timestamp()}
    return known


class _SiteServer(ThreadingHTTPServer):
    """Serves a folder to whoever asks for it by an address or name of this server."""

    def __init__(self, address: tuple[str, int], site: Path, metrics: Callable[[], bytes]) -> None:
        self.site = site.resolve()
        self.metrics = metrics
        self.bound_to = address[0]
        super().__init__(address, functools.partial(_Handler, directory=str(self.site)))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; hang up where there are so many that somebody only holds them."""
        if threading.active_count() > MOST_READERS:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def answers_to(self, host: str | None) -> bool:
        """Whether a request's Host header names this server.

        A page elsewhere whose name was made to lead here, so that a reader's browser reads the site for it, names
        itself. A server of every address is asked by numbers, or by this machine's name.
        """
        try:
            parts = urlsplit(f"//{host or ''}")
            asked, is_own_port = parts.hostname or "", parts.port in (None, self.server_address[1])
        except ValueError:
            return False
        if not is_own_port:
            return False
        if asked in LOCAL_NAMES or asked == self.bound_to.lower():
            return bool(asked)
        is_everywhere = _is_address(self.bound_to) and ipaddress.ip_address(self.bound_to).is_unspecified
        return is_everywhere and (_is_address(asked) or asked == socket.gethostname().lower())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site's files and says nothing about it. Folders are not listed, and nothing outside is reached."""

    server: _SiteServer
    timeout = SILENT_S

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """The file that is asked for, when it is one of the site's and asked of this server."""
        if not self.server.answers_to(self.headers.get("Host")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server has another name.")
            return None
        if urlsplit(self.path).path == "/metrics":
            return self._metrics()
        # A link inside the site may lead out of it, and names that begin with a dot are no pages.
        found = Path(self.translate_path(self.path)).resolve()
        below = found.relative_to(self.server.site).parts if found.is_relative_to(self.server.site) else (".",)
        if any(part.startswith(".") for part in below):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if below in AWAITED and not (found / "index.html" if below == () else found).is_file():
            return self._content(AWAITED[below].encode(), "text/html; charset=utf-8", HTTPStatus.SERVICE_UNAVAILABLE)
        return super().send_head()

    def _metrics(self) -> io.BytesIO:
        """Answer to Prometheus."""
        return self._content(self.server.metrics(), CONTENT_TYPE)

    def _content(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> io.BytesIO:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return io.BytesIO(content)

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """A folder without an index page is not found."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        """A browser must ask again each time: pages are rewritten."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", CONTENT_POLICY)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


def server(site: Path, host: str, port: int, metrics: Callable[[], bytes]) -> ThreadingHTTPServer:
    """A server of the folder `site`, and of `metrics` at /metrics; port 0 takes a free one."""
    try:
        return _SiteServer((host, port), site, metrics)
    except OSError as error:
        raise ReportError(f"Cannot serve on {host}:{port}: {error.strerror}. Choose another --port.") from error


def fingerprint(archives: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """State of the archives that the site is made of: each archive's number of trials and newest file."""
    found = []
    for archive in find_readable(list(archives))[0]:
        files = [archive.path / "sweep.json", archive.path / "end.json", *(archive.path / "trials").glob("[!.]*.json")]
        stamps = [file.stat().st_mtime_ns for file in files if file.is_file()]
        found.append((str(archive.path), len(stamps), max(stamps, default=0)))
    return tuple(found)


def is_running(archives: Sequence[Path]) -> bool:
    """Whether any archive's sweep has not ended."""
    return any(not (archive.path / "end.json").is_file() for archive in find_readable(list(archives))[0])


def watch(
    archives: Sequence[Path],
    site: Path,
    *,
    node_names: bool,
    texts: bool = False,
    docs: WriteDocs | None = None,
    stop: threading.Event,
    say: Callable[[str], None],
) -> None:
    """Build the site, and again whenever a trial has landed, until `stop`. live.html is there while one runs."""
    known: tuple[tuple[str, int, int], ...] | None = None
    while not stop.is_set():
        try:
            now = fingerprint(archives)
            if now != known:
                build_site(archives, site, node_names=node_names, texts=texts, live=is_running(archives), docs=docs)
                known = now
                say(f"Built from {sum(count for _, count, _ in now)} files")
        except IncompleteSiteError as error:
            known = now
            say(str(error))
        except (ArchiveError, ReportError) as error:
            # A sweep that has not written its first file yet, or a trial in the middle of landing: look again.
            say(str(error))
        stop.wait(LOOK_S)
