"""The site while a sweep runs: built again as trials land, and served on this machine."""

import functools
import threading
from collections.abc import Callable, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tokenpeak.errors import ArchiveError, ReportError
from tokenpeak.report.site import build_site
from tokenpeak.store.raw import find_archives

LOOK_S = 2.0
"""Between two looks at the archives."""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site's files and says nothing about it."""

    def end_headers(self) -> None:
        """A browser must ask again each time: pages are rewritten."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


def server(site: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the folder `site`; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer((host, port), functools.partial(_Handler, directory=str(site)))
    except OSError as error:
        raise ReportError(f"Cannot serve on {host}:{port}: {error.strerror}. Choose another --port.") from error


def fingerprint(archives: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """What would change the site: each archive's number of trials and newest file."""
    found = []
    for archive in find_archives(list(archives)):
        files = [archive.path / "sweep.json", archive.path / "end.json", *(archive.path / "trials").glob("[!.]*.json")]
        stamps = [file.stat().st_mtime_ns for file in files if file.is_file()]
        found.append((str(archive.path), len(stamps), max(stamps, default=0)))
    return tuple(found)


def is_running(archives: Sequence[Path]) -> bool:
    """Whether any archive's sweep has not ended."""
    return any(not (archive.path / "end.json").is_file() for archive in find_archives(list(archives)))


def watch(
    archives: Sequence[Path], site: Path, *, node_names: bool, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Build the site, and again whenever a trial has landed, until `stop`. live.html is there while one runs."""
    known: tuple[tuple[str, int, int], ...] = ()
    while not stop.is_set():
        try:
            now = fingerprint(archives)
            if now != known:
                build_site(archives, site, node_names=node_names, live=is_running(archives))
                known = now
                say(f"Built from {sum(count for _, count, _ in now)} files")
        except (ArchiveError, ReportError) as error:
            # A sweep that has not written its first file yet, or a trial in the middle of landing: look again.
            say(str(error))
        stop.wait(LOOK_S)
