"""A researcher tunes four V100 without root: everything happens as that user, and nothing is left."""

import json
import threading
import time

import pytest
from tests.docs.reader import Reader
from tests.walks.conftest import Boot
from tests.walks.nodes import own_files, put_model, simulate

pytestmark = [pytest.mark.e2e]

PAGE = "how-to/without-root"
USER = "ada"


def test_walk(somebody: Reader, boot: Boot) -> None:
    """The page as it stands, on a node where the user may not become root."""
    node = boot("walk-r1", 162)
    node.sh("useradd", "-m", "-s", "/bin/bash", USER)
    simulate(node, f"/home/{USER}/vllm/bin", "Tesla V100-PCIE-32GB", 4, "0.8.5.post1")
    home = f"/home/{USER}"
    put_model(node, f"{home}/models/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B")
    node.sh("sh", "-c", f"cp -r /root/.ssh {home}/ && chown -R {USER}: {home} && rm /root/.ssh/authorized_keys")
    may_become_root = node.sh("su", USER, "-c", "sudo -n true && echo yes")
    somebody.stand_for["192.0.2.11"] = node.address
    somebody.on_node = lambda _: ""
    somebody.type(f"ssh-keyscan -t ed25519 {node.address} >> ~/.ssh/known_hosts")
    before = own_files(node)
    engines: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        """Whom engines run as, by the node's own process table."""
        while not over.is_set():
            listed = node.sh("ps", "-eo", "user:20,args").splitlines()
            engines.update(line.split()[0] for line in listed if "tokenpeak.sim.engine serve" in line)
            time.sleep(1)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        somebody.follow(PAGE, lambda line: _shrink(somebody, line))
    finally:
        over.set()
        watching.join()
    trials = [json.loads(path.read_text()) for path in sorted(somebody.folder.glob("results/*/trials/*.json"))]

    assert "" == may_become_root
    assert "none is down" in somebody.said("tokenpeak probe")
    assert "4x Tesla" in somebody.said("tokenpeak probe")
    assert ["ok", "ok"] == [trial["status"] for trial in trials], [trial["failure"] for trial in trials]
    assert {USER} == engines
    assert (somebody.folder / "site" / "build" / "index.html").is_file()
    assert before == own_files(node)


def _shrink(somebody: Reader, line: str) -> None:
    if line.startswith("tokenpeak sweep"):
        somebody.shrink("v100-deepseek-r1-32b", {"max_num_seqs": [8, 32]}, dtype="float16", tensor_parallel_size=4)
