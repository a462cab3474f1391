"""A platform engineer tunes vLLM in containers behind HAProxy: both real, and no client of the balancer notices."""

import json
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.docker_daemon import why_no_docker
from tests.docs.reader import Reader
from tests.faults.balancer import GATEWAY, Balancer, Clients
from tests.rig.conftest import RigNode
from tests.rig.engine_image import engine_tar
from tests.sim.running_engine import free_port
from tests.walks.conftest import Boot
from tests.walks.nodes import put_model, served, simulate, start_docker, wait_for

pytestmark = [pytest.mark.e2e]

PAGE = "how-to/containers-behind-haproxy"
IMAGE = "vllm/vllm-openai:v0.32.0"


def container(node: RigNode) -> str:
    """The production container's id, while it runs."""
    return node.sh("docker", "ps", "--quiet", "--no-trunc", "--filter", "name=^vllm$").strip()


def test_walk(somebody: Reader, boot: Boot, tmp_path: Path) -> None:
    """The page as it stands, on two nodes with Docker, behind HAProxy, with users who ask the whole time."""
    for reason in (why_no_docker(), None if shutil.which("haproxy") else "haproxy is not installed (Debian: haproxy)"):
        if reason:
            pytest.skip(reason)
    nodes = {"gpu-1": boot("walk-p1", 160), "gpu-2": boot("walk-p2", 161)}
    image = engine_tar(tmp_path, gpus=1, release="0.32.0")
    for node in nodes.values():
        simulate(node, "/opt/simulated", "NVIDIA L4", 1, "0.32.0")
        put_model(node, "/models/Llama-3.1-8B-Instruct")
        start_docker(node, image, IMAGE)
    frontend, stats = free_port(), free_port()
    somebody.stand_for |= {
        "192.0.2.11": nodes["gpu-1"].address,
        "192.0.2.12": nodes["gpu-2"].address,
        "192.0.2.5:9999": f"{GATEWAY}:{stats}",
        "bind :8080": f"bind {GATEWAY}:{frontend}",
    }
    somebody.on_node = lambda line: "".join(node.sh("bash", "-c", line) for node in nodes.values())
    hosts = " ".join(node.address for node in nodes.values())
    somebody.type(f"ssh-keyscan -t ed25519 {hosts} >> ~/.ssh/known_hosts")
    running: list[subprocess.Popen[bytes]] = []
    front = Balancer(port=frontend, runtime_port=stats, backend="vllm")
    clients = Clients(front.url, "llama-8b", tokens=8, pause_s=0.1)
    asking = ExitStack()
    before: dict[str, str] = {}

    def are_up() -> bool:
        return all(front.is_in(name) for name in nodes)

    def prepare(line: str) -> None:
        """HAProxy begins with the page's file, and both containers serve and are asked, before TokenPeak is set up."""
        if line.startswith("tokenpeak init"):
            running.append(subprocess.Popen(["haproxy", "-db", "-f", str(somebody.folder / "haproxy.cfg")]))
            for name, node in nodes.items():
                wait_for(lambda node=node: served(node, "llama-8b"), f"production of {name}")
                before[name] = container(node)
            wait_for(are_up, "both servers are up")
            asking.enter_context(clients.sending())
        if line.startswith("tokenpeak sweep"):
            somebody.shrink("quick", {"max_num_seqs": [8, 64]})

    try:
        with asking:
            somebody.follow(PAGE, prepare)
            wait_for(are_up, "both servers are up again")
    finally:
        for process in running:
            process.terminate()
            process.wait()
    trials = [json.loads(path.read_text()) for path in sorted(somebody.folder.glob("results/*/trials/*.json"))]
    text = next(somebody.folder.glob("site/build/2*/index.html")).read_text()

    assert ["ok", "ok"] == [trial["status"] for trial in trials], [trial["failure"] for trial in trials]
    assert {True} == {trial["restoration"]["restored"] for trial in trials}
    assert [] == clients.failed
    assert clients.answered > 50
    assert before == {name: container(node) for name, node in nodes.items()}
    assert "docker run" in text
    assert "sha256:" in text
    assert somebody.said("tokenpeak status").count("serves llama-8b") == 2
