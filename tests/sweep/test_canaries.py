"""A whole sweep with secrets in every place that a user would put one, and hostile words in every value.

Afterwards every byte written on the controller and the node is searched.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from driven_home import MODEL, TOKENPEAK

from leak_search import pieces
from tokenpeak import paths

pytestmark = [pytest.mark.e2e]

HOSTILE = [
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "{{ 7 * 7 }}{% raw %}",
    "{{ lookup('pipe', 'touch pwned') }}",
    "$(touch pwned) `touch pwned`; touch pwned",
    "%n%s \\x41 é \u202e 'quoted' \"too\"",
]
SWEEP_S = 1500
SERVED = HOSTILE[0] + HOSTILE[2] + HOSTILE[4]


@dataclass
class Swept:
    """Everything that a sweep left behind, and what it was not to leave."""

    said: str
    status: int
    root: Path
    state: Path
    secrets: dict[str, str]
    argv_seen: bytes
    allowed: set[Path]


def hostile_spec() -> dict[str, Any]:
    """Two configs whose every word is hostile."""
    return {
        "description": " ".join(HOSTILE),
        "model": {"name": MODEL, "served_name": SERVED},
        "axes": {
            "labels": [
                {"name": HOSTILE[1], "flags": {"max_num_seqs": 8}, "env": {"HOSTILE": HOSTILE[3]}},
                {"name": HOSTILE[2], "flags": {"max_num_seqs": 16}, "env": {"HOSTILE": HOSTILE[5]}},
            ]
        },
        "fixed": {"name": "fixed", "flags": {"max_model_len": 2048, "chat_template": HOSTILE[4]}},
        "workloads": [
            {
                "workload": {"kind": "synthetic", "name": "short", "input_tokens": 16, "output_tokens": 8},
                "levels": [{"concurrency": 4, "requests": 16}],
            }
        ],
        "search": {"anchor_every": None, "baseline": [], "finalists": 0},
        # A busy machine makes everything slow, which is not what is tested here.
        "deadlines": {"engine_ready_s": 600, "run_s": 600, "production_ready_s": 600, "lease_s": 600},
    }


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    base = tmp_path_factory.mktemp("canaries")
    root = base / "a $(touch pwned) 'checkout' {{ 7 }}"
    state = base / "state"
    root.mkdir()
    for name in ("playbooks", "notebooks"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.ROOT / "site", root / "site", ignore=shutil.ignore_patterns("build"))
    secrets = {
        "engine's environment file": "canary-hf-71c0e2b94d",
        "controller's HF_TOKEN": "canary-own-5d2a8c17f3",
        "controller's other key": "canary-key-90b3e6f2aa",
        "controller's database password": "canary-db-1f4c7d8e02",
        "production's environment": "canary-prod-c3d95b7e61",
    }
    tokens = base / "engine.env"
    tokens.write_text("HF_TOKEN=" + secrets["engine's environment file"] + "\n")
    tokens.chmod(0o600)
    pid = os.getpid()
    address = f"127.{200 + pid // 65025 % 50}.{1 + pid // 255 % 254}.{1 + pid % 254}"
    shared = yaml.safe_load((paths.INVENTORIES / "sim" / "group_vars" / "all.yml").read_text())
    shared["tokenpeak_engine_env"] = {"TOKENPEAK_SIM_START_S": "0.3"}
    shared["tokenpeak_engine_env_allowed"] = ["HOSTILE"]
    shared["tokenpeak_engine_env_file"] = str(tokens)
    shared["tokenpeak_production"]["process"]["env"] = {
        "TOKENPEAK_SIM_START_S": "0.3",
        "HF_TOKEN": secrets["production's environment"],
    }
    inventory = root / "inventory" / "hostile"
    (inventory / "group_vars").mkdir(parents=True)
    one = {"tokenpeak_host": address, "tokenpeak_simulated_gpu": "NVIDIA L4"}
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"one": one}}}))
    (inventory / "group_vars" / "all.yml").write_text(yaml.safe_dump(shared))
    (root / "analysis" / "sweeps").mkdir(parents=True)
    (root / "analysis" / "sweeps" / "hostile.yml").write_text(yaml.safe_dump(hostile_spec()))
    environment = {
        **os.environ,
        "TOKENPEAK_HOME": str(root),
        "TOKENPEAK_STATE": str(state),
        "HF_TOKEN": secrets["controller's HF_TOKEN"],
        "OPENAI_API_KEY": secrets["controller's other key"],
        "PGPASSWORD": secrets["controller's database password"],
        "TMPDIR": str(base / "tmp"),
    }
    (base / "tmp").mkdir()
    running = subprocess.Popen(
        [TOKENPEAK, "sweep", "--inventory", "hostile", "--sweep", "hostile"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=base,
    )
    seen: set[bytes] = set()
    keys: dict[str, str] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes())
                except OSError:
                    continue
            for path in state.glob("work/*/*/api-key"):
                with suppress(OSError):
                    if key := path.read_text().strip():
                        keys[f"key of trial {path.parent.name}"] = key

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        said, _ = running.communicate(timeout=SWEEP_S)
    except subprocess.TimeoutExpired:
        running.kill()
        said = f"It did not end within {SWEEP_S} s.\n{running.communicate()[0]}"
    over.set()
    watcher.join()
    secrets["controller's master secret"] = (state / "master-secret").read_text().strip()
    secrets |= keys
    node = state / "nodes" / "one"
    yield Swept(
        said=said,
        status=running.returncode,
        root=base,
        state=state,
        secrets=secrets,
        argv_seen=b"\n".join(seen),
        # Where they belong: root-only files that the user wrote, or that hold exactly one secret.
        allowed={
            tokens,
            inventory / "group_vars" / "all.yml",
            state / "master-secret",
            *node.glob("secret-*"),
            node / "node.json",
        },
    )
    subprocess.run([TOKENPEAK, "restore", "--inventory", "hostile"], env=environment, capture_output=True, check=False)
    for recorded in state.glob("nodes/*/production.json"):
        os.killpg(json.loads(recorded.read_text())["pid"], 9)


def test_sweep_of_hostile_values_completes(swept: Swept) -> None:
    """Labels, flags, names, environments and paths arrive as they are, and are measured."""
    trials = [json.loads(path.read_text()) for path in swept.root.glob("*/results/*/trials/*.json")]

    assert 0 == swept.status, swept.said
    assert ["ok", "ok"] == [trial["status"] for trial in trials], swept.said
    assert all(SERVED in trial["argv"] and HOSTILE[4] in trial["argv"] for trial in trials)
    assert {HOSTILE[3], HOSTILE[5]} == {trial["config"]["env"]["HOSTILE"] for trial in trials}


def test_nothing_hostile_was_carried_out(swept: Swept) -> None:
    """No value got to a shell or a template."""
    written = [
        path for path in (*swept.root.rglob("*"), Path.cwd() / "pwned") if path.name == "pwned" and path.exists()
    ]

    assert [] == written


def test_no_secret_is_written(swept: Swept) -> None:
    """Every byte on the controller and the node: raw files, database, pages, notebooks, artifacts, logs, state."""
    files = [path for path in swept.root.rglob("*") if path.is_file() and not path.is_symlink()]
    leaks = []
    for path in files:
        if path not in swept.allowed:
            content = b"".join(piece for _, piece in pieces("file", path.read_bytes()))
            leaks += [f"{name} in {path}" for name, secret in swept.secrets.items() if secret.encode() in content]

    assert len(files) > 100
    assert [] == leaks
    assert [0o600] * len(swept.allowed - {*swept.root.glob("*/inventory/*/group_vars/all.yml")}) == [
        path.stat().st_mode & 0o777 for path in swept.allowed if path.name != "all.yml"
    ]


def test_no_secret_is_an_argument(swept: Swept) -> None:
    """No process of the sweep showed one in its command line."""
    assert b"tokenpeak" in swept.argv_seen
    assert [] == [name for name, secret in swept.secrets.items() if secret.encode() in swept.argv_seen]
    assert [] == [name for name, secret in swept.secrets.items() if secret in swept.said]


def test_pages_escape_hostile_values(swept: Swept) -> None:
    """Pages show the values and never as markup."""
    pages = list(swept.root.glob("*/site/build/**/*.html"))
    raw = "".join(page.read_text() for page in pages)

    assert pages
    assert "window.pwned" in raw
    assert "<script>window.pwned" not in raw
    assert "<img src=x" not in raw
