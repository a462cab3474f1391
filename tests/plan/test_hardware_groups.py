"""Which nodes are the same kind of hardware: by facts, whatever their label says."""

from archive_factory import sweep_spec
from node_models import LLAMA, named, serving
from tokenpeak.plan.matrix import build_plan
from tokenpeak.records import EngineBuild, Gpu, NodeFacts, hardware_groups

GIB = 2**30


def node(
    name: str, *, gib: float = 32, driver: str = "550.54.15", count: int = 2, links: str | None = None
) -> NodeFacts:
    """A node with V100s."""
    board = {"name": "Tesla V100-PCIE", "vram_bytes": int(gib * GIB), "driver": driver}
    gpus = tuple(Gpu(index=index, **board) for index in range(count))
    return NodeFacts(node=name, source="probed", gpus=gpus, memory_bytes=256 * GIB, interconnect=links)


def groups(*nodes: NodeFacts) -> dict[str, list[str]]:
    """The names of the nodes by their label."""
    return {label: [each.node for each in same] for label, same in hardware_groups(nodes).items()}


def test_equal_facts_are_one_kind() -> None:
    """A driver's fix and what a driver keeps of the memory make no other kind; the label is short then."""
    assert {"2x Tesla V100-PCIE": ["a", "b"]} == groups(node("a"), node("b", gib=31.75, driver="550.90.07"))


def test_equal_boards_with_another_driver_are_two_kinds() -> None:
    """Another branch of the driver runs other kernels."""
    found = groups(node("a"), node("b", driver="570.86.15"), node("c"))

    assert {
        "2x Tesla V100-PCIE (32 GiB, driver 550)": ["a", "c"],
        "2x Tesla V100-PCIE (32 GiB, driver 570)": ["b"],
    } == found


def test_equal_boards_with_other_engine_builds_are_two_kinds() -> None:
    """Another version is another plan and another search; the plan says what differs."""
    old, new = EngineBuild(name="old", installed="0.24.0"), EngineBuild(name="new", installed="0.32.0")
    nodes = [
        node(name).model_copy(update={"engines": builds})
        for name, builds in (("a", (old, new)), ("b", (old,)), ("c", (old, new)))
    ]
    plans = build_plan(sweep_spec(), serving(LLAMA, *nodes))

    start = "2x Tesla V100-PCIE"
    assert {f"{start} (old 0.24.0 + new 0.32.0)": ["a", "c"], f"{start} (old 0.24.0)": ["b"]} == groups(*nodes)
    assert [
        ("apart from b: engine builds old 0.24.0 + new 0.32.0 here, old 0.24.0 there",),
        ("apart from a, c: engine builds old 0.24.0 here, old 0.24.0 + new 0.32.0 there",),
    ] == [plan.apart for plan in plans]


def test_models_of_their_own_are_kinds_of_their_own() -> None:
    """Nodes that serve different models are planned apart, each with its own model; every label says which."""
    nodes = [*serving(LLAMA, node("a"), node("c")), *serving(named("Qwen/Qwen2.5-7B-Instruct"), node("b"))]
    plans = build_plan(sweep_spec().model_copy(update={"model": None}), nodes)

    assert {
        "2x Tesla V100-PCIE serving Llama-3.1-8B-Instruct": ("a", "c"),
        "2x Tesla V100-PCIE serving Qwen2.5-7B-Instruct": ("b",),
    } == {plan.hardware: plan.nodes for plan in plans}
    assert [{"meta-llama/Llama-3.1-8B-Instruct"}, {"Qwen/Qwen2.5-7B-Instruct"}] == [
        {each.config.model.name for each in (*plan.feasible, *plan.dropped)} for plan in plans
    ]
    assert [("apart from b: another model",), ("apart from a, c: another model",)] == [plan.apart for plan in plans]
    assert [2, 2] == [plan.gpus for plan in plans]
