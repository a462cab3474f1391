"""What the authors of published tunings have: their boards, simulated here, and the model that they serve."""

from collections.abc import Mapping
from typing import Any

import yaml
from tests.docs.reader import Reader


def simulate_nodes(
    somebody: Reader,
    name: str,
    *,
    like: str,
    gpus: int,
    version: str,
    model: Mapping[str, str],
    production: tuple[str, ...] = (),
) -> None:
    """Write an inventory with one simulated node of an example's boards, whose production serves the model."""
    folder = somebody.folder / "inventory"
    example: dict[str, Any] = yaml.safe_load((folder / like / "group_vars" / "all.yml").read_text())
    board = {**example["tokenpeak_facts"]["gpus"][0]}
    written: dict[str, Any] = yaml.safe_load((folder / "sim" / "group_vars" / "all.yml").read_text())
    written |= {
        "tokenpeak_model": {**model},
        "tokenpeak_engine_version": version,
        "tokenpeak_facts": {"gpus": [{**board, "index": index} for index in range(gpus)]},
    }
    written["tokenpeak_simulated_machine"] |= {"gpu": board["name"], "count": gpus}
    served = ("--served-model-name", model.get("served_name", model["name"]))
    written["tokenpeak_production"]["process"]["argv"] += [*served, "--tensor-parallel-size", str(gpus), *production]
    (folder / name / "group_vars").mkdir(parents=True)
    (folder / name / "group_vars" / "all.yml").write_text(yaml.safe_dump(written, sort_keys=False))
    hosts = {"all": {"hosts": {f"{name}-1": {"tokenpeak_host": "{{ loopback }}.1"}}}}
    (folder / name / "hosts.yml").write_text(yaml.safe_dump(hosts))


def change_sweep(somebody: Reader, sweep: str, **keys: Any) -> None:
    """Put other values into keys of a sweep of the working folder."""
    path = somebody.folder / "sweeps" / f"{sweep}.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **keys}, sort_keys=False))
