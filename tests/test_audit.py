"""The audit of dependencies, against an advisory service on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[1] / ".ci" / "audit"
ADVISORY = {
    "id": "PYSEC-2026-1",
    "summary": "made up",
    "affected": [{"package": {"name": "jinja2", "ecosystem": "PyPI"}, "ranges": [], "versions": []}],
}


class Advisories(BaseHTTPRequestHandler):
    """Knows one advisory, of the package that the server was told."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = asked["package"]["name"] == self.server.affected  # type: ignore[attr-defined]
        body = json.dumps({"vulns": [ADVISORY]} if known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Advisories) as server:
        server.affected = None  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def audit(url: str) -> "subprocess.CompletedProcess[str]":
    """What the audit says with this advisory service."""
    environment = {**os.environ, "OSV_URL": url}
    return subprocess.run([sys.executable, str(AUDIT)], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("affected", "status"), [("jinja2", 1), (None, 0)])
def test_finding_fails(service: ThreadingHTTPServer, affected: str | None, status: int) -> None:
    """A known vulnerability of a locked dependency fails the check and is named; none passes it."""
    service.affected = affected  # type: ignore[attr-defined]

    done = audit(f"http://127.0.0.1:{service.server_port}/v1/query")

    assert status == done.returncode, done.stdout + done.stderr
    assert ("PYSEC-2026-1" in done.stdout) == (affected is not None)
    assert "Audited" in done.stdout


def test_service_that_cannot_be_reached_is_said() -> None:
    """Nothing was audited: the check passes and says so."""
    done = audit("http://127.0.0.1:9/v1/query")

    assert 0 == done.returncode
    assert "NOT AUDITED" in done.stderr
