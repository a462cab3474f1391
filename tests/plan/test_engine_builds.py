"""Which engine build a config is launched with, and why with none."""

from dataclasses import replace

import pytest

from archive_factory import sweep_spec
from node_models import LLAMA, serving
from tokenpeak.errors import InventoryError, PlanError
from tokenpeak.node.engine.builds import is_version
from tokenpeak.plan.matrix import build_plan
from tokenpeak.records import EngineBuild, Gpu, NodeFacts, hardware_groups
from tokenpeak.spec.engine_build import declared_builds
from tokenpeak.spec.sweep import SweepSpec

SHORT = {"max_model_len": 2048}
"""A context for which there is memory."""
OLD = EngineBuild(name="old", version="0.24.0", installed="0.24.0")
NEW = EngineBuild(name="new", version="0.32.0", installed="0.32.0")


def node(*builds: EngineBuild, name: str = "n", gpu: str = "NVIDIA L4") -> NodeFacts:
    board = Gpu(index=0, name=gpu, vram_bytes=24 << 30, compute_capability="8.9")
    return NodeFacts(node=name, source="probed", gpus=(board,), engines=builds)


def spec(**keys: object) -> SweepSpec:
    return SweepSpec.model_validate({**sweep_spec({}).model_dump(mode="json"), "axes": {}, **keys})


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        ("0.32.0", "0.32.0", True),
        ("0.32.0", "0.32.0+cpu", True),
        ("0.32", "0.32.1", True),
        ("0.3", "0.32.0", False),
        ("0.32.0", "0.31.0", False),
        ("0.32.0", None, True),
    ],
)
def test_version_that_was_asked_for(asked: str | None, found: str | None, same: bool) -> None:
    """A shorter version is met by what it begins; a local part says how it was built, not what it is."""
    assert same is is_version(asked, found)


def test_axis_over_builds() -> None:
    """Each config has its build and version, and two builds of one version are two configs."""
    again = replace(NEW, name="again")
    (plan,) = build_plan(spec(axes={"engine": ["old", "new", "again"]}), serving(LLAMA, node(OLD, NEW, again)))
    found = [(each.config.engine, each.config.engine_version) for each in plan.feasible]

    assert [("old", "0.24.0"), ("new", "0.32.0"), ("again", "0.32.0")] == found
    assert 3 == len({each.config.config_id for each in plan.feasible})
    assert 3 == len({each.config_class for each in plan.feasible})


def test_flag_that_one_build_lacks_is_dropped_there() -> None:
    """A flag of another release drops the config of the build that lacks it; one that none has is an error."""
    axes = {"engine": ["old", "new"]}
    flag = {"name": "fixed", "flags": {**SHORT, "num_scheduler_steps": 4}}
    early = EngineBuild(name="old", version="0.8.5", installed="0.8.5")
    (plan,) = build_plan(spec(axes=axes, fixed=flag), serving(LLAMA, node(early, NEW)))

    assert ["old"] == [each.config.engine for each in plan.feasible]
    assert [("engine_flags", "new")] == [(each.rule, each.config.engine) for each in plan.dropped]
    with pytest.raises(PlanError, match="no_such_flag"):
        build_plan(
            spec(axes=axes, fixed={"name": "fixed", "flags": {"no_such_flag": 1}}), serving(LLAMA, node(early, NEW))
        )


def test_tag_that_names_two_images() -> None:
    """Nodes whose image of one name has another content are searched apart; a command's file does not part them."""

    def boxes(*digests: str, image: str | None) -> list[NodeFacts]:
        found = [replace(NEW, image=image, digest=f"sha256:{digest}") for digest in digests]
        return [node(one, name=f"n{place}") for place, one in enumerate(found)]

    apart = hardware_groups(boxes("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", image="engine:1"))

    assert ["1x NVIDIA L4 (new 0.32.0 (aaaaaaaaaaaa))", "1x NVIDIA L4 (new 0.32.0 (bbbbbbbbbbbb))"] == list(apart)
    assert 1 == len(hardware_groups(boxes("aa", "aa", image="engine:1")))
    assert 1 == len(hardware_groups(boxes("aa", "bb", image=None)))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"tokenpeak_engines": {"old": {"command": "vllm"}}}, r"tokenpeak_engines of node n: old\.command"),
        ({"tokenpeak_engines": {"old": {"version": "0.32.0"}}}, "a build has a command, an image, or both"),
        ({"tokenpeak_engines": {"old": {"command": ["x"], "user": "1000"}}}, "user: only a build with an image"),
        ({"tokenpeak_engines": {"old": {"image": "a:1", "mounts": ["models:/models"]}}}, r"old\.mounts"),
        ({"tokenpeak_engines": {"engine": {"command": ["x"]}}}, "give it another name"),
        (
            {"tokenpeak_engines": {"a": {"command": ["x"]}}, "tokenpeak_engine_command": ["y"]},
            "make the command one of the builds",
        ),
    ],
)
def test_builds_that_are_written_wrongly(variables: dict[str, object], said: str) -> None:
    """The error names node, key and what to write."""
    with pytest.raises(InventoryError, match=said):
        declared_builds("n", variables)
