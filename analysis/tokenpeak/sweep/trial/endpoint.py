"""Endpoint: a server that TokenPeak did not launch, measured as it is. Nothing is stopped, started or installed.

The load client runs on this machine as a process of its own, as in a trial of a node, and writes the same files. It
dies with its controller, because no guard would end what it asks of a server that other people use.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tokenpeak import paths
from tokenpeak.errors import NodeError, SpecError, suggestion
from tokenpeak.http_answer import HttpAnswer, HttpAnswerError, ask
from tokenpeak.loadgen.http.server import Server
from tokenpeak.loadgen.job import LoadJob
from tokenpeak.node.machine import clock
from tokenpeak.node.machine.words import one_line
from tokenpeak.node.protocol.answers import LaunchAnswer
from tokenpeak.node.protocol.parts import MachineFacts
from tokenpeak.paths import inside
from tokenpeak.records import Gpu, NodeFacts
from tokenpeak.spec.endpoint import REFERENCE, EndpointSpec
from tokenpeak.sweep.ansible.result import Event
from tokenpeak.sweep.inventory.nodes import Inventory, Node, read_inventory
from tokenpeak.sweep.probe import Probe, ReadyNode, declared_facts, last_facts
from tokenpeak.sweep.trial.execution import TrialResult, TrialSite
from tokenpeak.sweep.trial.record import TrialEvidence, trial_record
from tokenpeak.sweep.trial.request import RequestFiles, TrialRequest, load_runs, write_private
from tokenpeak.sweep.trial.worker import Worker

INVENTORY = "endpoint"
"""What stands for the inventory where there is none."""
_LOOK_S = 10.0
_LOOK_LIMIT_BYTES = 1 << 20
_VERSION_CHARACTERS = 80
_LOG_TAIL_BYTES = 2000
_STOP_POLL_S = 0.2
_END_S = 10.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def endpoint_inventory(endpoint: EndpointSpec) -> Inventory:
    """The address as the one node of an inventory, which no playbook is run on; its load hosts are the real one's."""
    node = Node(name=endpoint.address, variables={"ansible_connection": "local"})
    if endpoint.inventory is None:
        return Inventory(name=INVENTORY, hosts_path=Path(os.devnull), nodes=(node,))
    behind = read_inventory(endpoint.inventory)
    return Inventory(name=INVENTORY, hosts_path=behind.hosts_path, nodes=(node,), load_hosts=behind.load_hosts)


def look_at(endpoint: EndpointSpec, environment: Mapping[str, str] = os.environ) -> Probe:
    """What answers there; raises NodeError when nothing does or it does not serve the model."""
    server = _server(endpoint, environment)
    try:
        models, version = asyncio.run(_asked(server))
    except HttpAnswerError as error:
        raise NodeError(f"{endpoint.url} does not answer: {error}. Is it up, and reachable from here?") from error
    _refuse_other_model(endpoint, models)
    machine = MachineFacts(
        simulated=endpoint.simulated, gpus=_gpus_behind(endpoint), engine_version=_version_of(version)
    )
    facts = NodeFacts.of(machine, node=endpoint.address, source="endpoint", probed_at=datetime.now(UTC))
    return Probe(answered={endpoint.address: ReadyNode(facts=facts, declaration={})}, unreachable={}, failed={})


async def _asked(server: Server) -> tuple[HttpAnswer, HttpAnswer]:
    """Its answers to `/v1/models` and `/version`."""
    async with server.client() as client:
        return (
            await ask(client, "/v1/models", limit_bytes=_LOOK_LIMIT_BYTES, limit_s=_LOOK_S),
            await ask(client, "/version", limit_bytes=_LOOK_LIMIT_BYTES, limit_s=_LOOK_S),
        )


def _refuse_other_model(endpoint: EndpointSpec, models: HttpAnswer) -> None:
    if models.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise NodeError(f"{endpoint.url} answers {models.status}: it wants another API key. Give endpoint.api_key_env.")
    try:
        served = [str(entry["id"]) for entry in models.json()["data"]] if models.status == httpx.codes.OK else []
    except (ValueError, KeyError, TypeError):
        served = []
    # Not every router lists models; then the first request shows it.
    if served and endpoint.model not in served:
        raise NodeError(f"{endpoint.url} does not serve {endpoint.model!r}. {suggestion(endpoint.model, served)}")


def _version_of(answer: HttpAnswer) -> str | None:
    try:
        version = answer.json().get("version") if answer.status == httpx.codes.OK else None
    except (ValueError, AttributeError):
        return None
    return one_line(version[:_VERSION_CHARACTERS]) if isinstance(version, str) else None


def _gpus_behind(endpoint: EndpointSpec) -> tuple[Gpu, ...]:
    """The GPUs of every machine of the inventory, by their last probe, else as declared; none where one is unknown."""
    if endpoint.inventory is None:
        return ()
    inventory = read_inventory(endpoint.inventory)
    probed = {facts.node: facts for facts in last_facts(inventory.name)}
    gpus: list[Gpu] = []
    for node in inventory.nodes:
        facts = probed.get(node.name) or declared_facts(node)
        if facts is None:
            return ()
        gpus += facts.gpus
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))


def _server(endpoint: EndpointSpec, environment: Mapping[str, str]) -> Server:
    return Server(
        endpoint.url,
        api_key=_api_key(endpoint, environment),
        headers=_headers(endpoint, environment),
        ca_file=_path(endpoint.ca_file),
    )


def _api_key(endpoint: EndpointSpec, environment: Mapping[str, str]) -> str | None:
    name = endpoint.api_key_env
    return None if name is None else _variable(name, "endpoint.api_key_env", environment)


def _headers(endpoint: EndpointSpec, environment: Mapping[str, str]) -> dict[str, str]:
    return {name: _filled(value, f"endpoint.headers.{name}", environment) for name, value in endpoint.headers.items()}


def _filled(value: str, where: str, environment: Mapping[str, str]) -> str:
    return REFERENCE.sub(lambda found: _variable(found[1], where, environment), value)


def _variable(name: str, where: str, environment: Mapping[str, str]) -> str:
    if not environment.get(name):
        raise SpecError(f"{where} names the environment variable {name}, which is not set; export it.")
    return environment[name]


def _path(text: str | None) -> Path | None:
    """A path of the spec's; a relative one is below the checkout, wherever the command is run."""
    return None if text is None else paths.HOME / Path(text).expanduser()


class EndpointWorker(Worker):
    """A thread that measures a server again and again, with nothing to give back."""

    gives_back = False

    def _carry_out(self, request: TrialRequest, on_event: Callable[[Event], None]) -> TrialResult:
        return measure(request, self._shared.site, on_event)


def measure(request: TrialRequest, site: TrialSite, on_event: Callable[[Event], None]) -> TrialResult:
    """All runs of the spec, once; returns in every case. A client that is ended leaves an interrupted trial."""
    evidence = TrialEvidence(
        request=request, started_at=datetime.now(UTC), started_boot_s=clock.boot_s(), launch=LaunchAnswer(ready=True)
    )
    files = _write_job(request, inside(site.folder, request.trial_id), evidence.started_at.timestamp())
    began_s = time.time()
    on_event(Event(kind="started", node=request.node.name, step="load"))
    failure = _offer(files, site.interrupt.gentle)
    evidence = replace(
        evidence,
        output=files.output,
        spans={"load": (began_s, time.time())},
        failure=failure,
        cancelled=site.interrupt.gentle() and failure is not None,
    )
    record, _ = trial_record(evidence, site.provenance)
    parquet = files.output / "requests.parquet"
    is_lost = record.status == "interrupted" and not evidence.cancelled
    return TrialResult(
        record=record,
        requests_parquet=parquet if parquet.is_file() else None,
        log_text="",
        # As with a node: what keeps a launch from being measured twice in a row ends the sweep, and says so.
        node_trouble=record.failure.message if is_lost and record.failure is not None else None,
    )


def _write_job(request: TrialRequest, folder: Path, started_at_unix_s: float) -> RequestFiles:
    endpoint = request.spec.endpoint
    assert endpoint is not None, "an endpoint is measured for a spec that has one"
    files = RequestFiles(folder=folder)
    files.output.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    key = _api_key(endpoint, os.environ)
    if key is not None:
        write_private(files.api_key, key + "\n")
    job = LoadJob(
        base_url=endpoint.url,
        model=endpoint.model,
        api_key_file=None if key is None else files.api_key,
        headers=_headers(endpoint, os.environ),
        ca_file=_path(endpoint.ca_file),
        hosts=request.load_hosts,
        runs=load_runs(request.spec, holdout=request.proposal.holdout),
        trial_started_at_unix_s=started_at_unix_s,
        output_dir=files.output,
        progress_file=files.progress,
        metrics_url=endpoint.metrics_url,
        run_deadline_s=request.spec.deadlines.run_s,
    )
    write_private(files.job, job.model_dump_json())
    return files


def _offer(files: RequestFiles, cancelled: Callable[[], bool]) -> str | None:
    """Run the load client to its end; why it did not end well, or None."""
    log_path = files.folder / "client.log"
    argv = [str(Path(sys.executable).with_name("tokenpeak")), "load", "--job", str(files.job)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            argv,
            cwd=paths.HOME,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=_STOP_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if cancelled():
                        _end(process)
                        return "The load client was ended."
        finally:
            if process.poll() is None:
                _end(process)
    if status == 0:
        return None
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - _LOG_TAIL_BYTES))
        last = log.read(_LOG_TAIL_BYTES).decode(errors="replace").strip()
    return last or f"The load client ended with status {status}."


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the client and the processes that it made."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
