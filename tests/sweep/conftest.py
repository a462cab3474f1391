"""A TokenPeak home of its own: the real playbooks and simulator, with nodes at addresses that nobody else uses."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
import yaml
from driven_home import (
    BUILDS,
    CLIMB,
    KEEP,
    NOTIFIED,
    OTHER_MODEL,
    SHARE,
    SPEC,
    VERSIONS,
    Home,
    receiver_to,
)

from tokenpeak import paths


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with inventories: `lone` (one node), `mixed` (and one out of reach), `shared` (load hosts), `twins`.

    `rack` is `twins` of which one may be unavailable.
    `builds` is the node of `lone` with two engine builds, `models` is `twins` with a model each.
    """
    root = tmp_path_factory.mktemp("home")
    for name in ("playbooks", "notebooks", "site"):
        (root / name).symlink_to(paths.ROOT / name)
    pid = os.getpid()
    address, other = (f"127.{100 + pid // 65025 % 100 + far}.{1 + pid // 255 % 254}.{1 + pid % 254}" for far in (0, 1))
    shared = yaml.safe_load((paths.INVENTORIES / "sim" / "group_vars" / "all.yml").read_text())
    # A plan refuses variables that nothing reads; these are of the hosts that this home has not.
    for name in ("tokenpeak_user", "tokenpeak_place", "tokenpeak_loopback"):
        shared.pop(name, None)
    shared["tokenpeak_default_sweep"] = "pair"
    shared["tokenpeak_engine_env"] = {"TOKENPEAK_SIM_START_S": "0.3"}
    shared["tokenpeak_production"]["process"]["env"] = {"TOKENPEAK_SIM_START_S": "0.3"}
    one = {"tokenpeak_host": address, "tokenpeak_simulated_gpu": "NVIDIA L4"}
    gone = {**one, "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    local = {"ansible_connection": "local"}
    both = {"load_hosts": {"hosts": {"left": local, "right": local}}}
    builds = {name: {"version": release, "command": [f"{{{{ tokenpeak_tools }}}}/vllm-{release}", "serve"]}
              for name, release in BUILDS.items()}  # fmt: skip
    machine = {**shared["tokenpeak_simulated_machine"], "releases": list(BUILDS.values())}
    variables = {name: value for name, value in shared.items() if name != "tokenpeak_engine_command"}
    two_builds = {**variables, "tokenpeak_engines": builds, "tokenpeak_simulated_machine": machine}
    for name, hosts, children in (
        ("lone", {"one": one}, {}),
        ("mixed", {"one": one, "gone": gone}, {}),
        ("shared", {"one": one}, both),
        ("twins", {"one": one, "two": {**one, "tokenpeak_host": other}}, {}),
        ("rack", {"one": one, "two": {**one, "tokenpeak_host": other}}, {}),
        ("builds", {"one": one}, {}),
        (
            "models",
            {},
            {"llama": {"hosts": {"one": one}}, "qwen": {"hosts": {"two": {**one, "tokenpeak_host": other}}}},
        ),
    ):
        folder = root / "inventory" / name
        (folder / "group_vars").mkdir(parents=True)
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "children": children}}))
        given = two_builds if name == "builds" else shared
        if name == "rack":
            given = {**given, "tokenpeak_max_unavailable": {"all": "50%"}}
        if name == "mixed":
            given = {**given, "tokenpeak_notify": [receiver_to(root / NOTIFIED)]}
        if name == "models":
            qwen = {"tokenpeak_model": {"name": OTHER_MODEL, "served_name": "qwen"}}
            (folder / "group_vars" / "qwen.yml").write_text(yaml.safe_dump(qwen))
        # The first of the builds is the default one, so their order is kept.
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(given, sort_keys=False))
    (root / "analysis" / "sweeps").mkdir(parents=True)
    specs = {
        "pair": SPEC,
        "climb": CLIMB,
        "keep": KEEP,
        "versions": VERSIONS,
        "share": SHARE,
    }
    for name, spec in specs.items():
        (root / "analysis" / "sweeps" / f"{name}.yml").write_text(yaml.safe_dump(spec))
    found = Home(root=root, state=tmp_path_factory.mktemp("state"), address=address)
    yield found
    found.run("restore", "--inventory", "lone")
    for process in found.state.glob("nodes/*/production.json"):
        os.killpg(json.loads(process.read_text())["pid"], signal.SIGKILL)
