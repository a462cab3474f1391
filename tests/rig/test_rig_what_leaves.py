"""A real sweep over SSH with canaries wherever a user names something: none is in what leaves afterwards."""

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.faults.bench import CHATTER, MODEL, SPEC, TOKENPEAK, Bench
from tests.faults.conftest import boot_node, place  # noqa: F401

from leak_search import leaks
from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rig")]

CANARIES = ("kn4ry", "2001:db8:ca4a", "10.203.", "10.77.0.", "ca4a0000-1111", "ca:4a:00:", "AKIAKN4RY", "hunter2kn")
"""What may not leave: every name, path, address and secret below holds one. 10.77.0.x is where the nodes are."""
TEAM = "/opt/kn4ry-models/team"
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
UNIT = "kn4ryserving.service"
SAID = """INFO I am jane.kn4ry@corp.example on kn4ryhost.internal, at 2001:db8:ca4a::7 and 10.203.4.5:29500
INFO HF_TOKEN=hf_kn4ry0abcdefghijklmnop Authorization: Bearer kn4ry.0123-456 sk-kn4ryabcdefghijkl
INFO proxy http://kn4ry:hunter2kn@kn4ryproxy.corp.internal:3128/kn4ry and bob:hunter2kn@kn4ryproxy:3128
INFO GPU-ca4a0000-1111-2222-3333-444444444444 over ca:4a:00:12:34:56, cache /srv/kn4ry/cache --api-key hunter2kn
INFO AKIAKN4RY0123456789 user=kn4ryuser node rig-kn4ry1 serves kn4ryserving at 12:34:56
"""


@pytest.fixture
def bench(place: Path, tmp_path: Path) -> Iterator[Bench]:  # noqa: F811
    """A node and a controller's home whose every name is a canary."""
    node = boot_node(place, "rig-kn4ry1", 147)
    made = Bench(node=node, root=tmp_path / "home" / "kn4ryperson" / "checkout", state=tmp_path / "kn4rystate")
    made.prepare()
    yield made
    node.testnode("down")
    (place / "known_hosts").unlink(missing_ok=True)


def sow(bench: Bench) -> None:
    """Canaries in the inventory, the node's files, production's unit and arguments, the spec, and the engine's log."""
    node = bench.node
    node.sh("mkdir", "-p", TEAM, "/etc/kn4ry", "/srv/kn4ry-state")
    node.sh("mkdir", "-p", f"{TEAM}/Llama-3.1-8B-Instruct")
    node.write(f"{TEAM}/Llama-3.1-8B-Instruct/config.json", json.dumps(SHAPE))
    node.write("/etc/kn4ry/engine.env", "HF_TOKEN=hf_kn4ry0abcdefghijklmnop\nKN4RY_SECRET=hunter2kn\n")
    node.write("/etc/kn4ry/production.key", "hunter2kn\n")
    node.sh("chmod", "600", "/etc/kn4ry/engine.env", "/etc/kn4ry/production.key")
    node.write(CHATTER, SAID)
    unit = node.sh("cat", "/etc/systemd/system/prod.service")
    unit = unit.replace(
        "--max-model-len 4096", "--max-model-len 4096 --download-dir /srv/kn4ry/hub --api-key hunter2kn"
    )
    node.write(f"/etc/systemd/system/{UNIT}", unit)
    node.sh("systemctl", "disable", "-q", "--now", "prod.service")
    node.sh("systemctl", "daemon-reload")
    node.sh("systemctl", "enable", "-q", "--now", UNIT)
    path = bench.root / "inventory" / "rig" / "hosts.yml"
    hosts = yaml.safe_load(path.read_text())
    variables = hosts["all"]["hosts"][node.name]
    variables["tokenpeak_state_dir"] = "/srv/kn4ry-state"
    variables["tokenpeak_model_path"] = f"{TEAM}/Llama-3.1-8B-Instruct"
    variables["tokenpeak_engine_env_file"] = "/etc/kn4ry/engine.env"
    variables["tokenpeak_engine_env"] = {"VLLM_CACHE_ROOT": "/srv/kn4ry/cache"}
    variables["tokenpeak_engine_env_allowed"] = ["VLLM_CACHE_ROOT"]
    variables["tokenpeak_production"].update(unit=UNIT, api_key_file="/etc/kn4ry/production.key")
    path.write_text(yaml.safe_dump(hosts))
    spec = copy.deepcopy(SPEC)
    spec["description"] = "Asked by jane.kn4ry@corp.example of rig-kn4ry1"
    spec["axes"] = {"max_num_seqs": [8], "download_dir": ["/srv/kn4ry/one", "/srv/kn4ry/two"]}
    spec["fixed"]["env"] = {"VLLM_CACHE_ROOT": "/srv/kn4ry/cache"}
    spec["deadlines"]["lease_s"] = 30
    spec["search"] = {"anchor_every": None, "finalists": 0}
    bench.write_spec("sown", spec)


def run(bench: Bench, *words: object) -> str:
    """A command as a user types it."""
    environment = {**os.environ, "TOKENPEAK_HOME": str(bench.root), "TOKENPEAK_STATE": str(bench.state)}
    done = subprocess.run(
        [TOKENPEAK, *map(str, words)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_canary_leaves_after_a_sweep(bench: Bench, tmp_path: Path) -> None:
    """The archive has canaries; neither the site that is sent nor the packed archive has one."""
    sow(bench)
    controller = bench.sweep("sown")
    assert 0 == controller.wait(400), controller.said
    archive = bench.archives()[-1]
    trials = tuple(Archive(archive).trials())
    found = leaks(archive, CANARIES)

    assert {"ok"} == {trial.status for trial in trials}, controller.said
    assert len(trials) > 2, "defaults or production are trials too"
    assert found, "canaries are in the archive, or nothing is shown"
    assert any(where.endswith(".engine.log.zst!zst") for where in (each.split(": …")[0] for each in found))

    said = run(bench, "archive", archive.name, "--output", tmp_path / "packed.tar.zst")
    run(bench, "report", archive, "--output", tmp_path / "site")
    run(bench, "publish", "dir", tmp_path / "out", "--site", tmp_path / "site")
    page = (tmp_path / "out" / archive.name / "index.html").read_text()
    print(said, f"{len(found)} places in the archive", sep="")

    assert [] == leaks(tmp_path / "packed.tar.zst", CANARIES)[:20]
    assert [] == leaks(tmp_path / "out", CANARIES)[:20]
    assert MODEL.rpartition("/")[2] in page
