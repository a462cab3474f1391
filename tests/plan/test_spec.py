from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak.errors import SpecError
from tokenpeak.plan.matrix import configs
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec

WORKLOAD: dict[str, Any] = {
    "workload": {"kind": "fixed", "name": "hello", "prompt": "Hello", "output_tokens": 8},
    "levels": [{"concurrency": 4, "requests": 8}],
}


def spec(**keys: object) -> SweepSpec:
    return parse_spec({"workloads": [WORKLOAD], **keys}, Path("mine.yml"))


def complaint(**keys: object) -> str:
    with pytest.raises(SpecError) as caught:
        spec(**keys)
    return str(caught.value)


def workload(**keys: object) -> list[dict[str, Any]]:
    return [{**WORKLOAD, "workload": {**WORKLOAD["workload"], **keys}}]


LATER = {"block_size": {"values": [16], "when": {"dtype": "half"}}, "dtype": ["half"]}
OTHER = {"dtype": ["half"], "block_size": {"values": [16], "when": {"dtype": "hulf"}}}
TWO_HIGHEST = {"gpu_memory_utilization": "highest", "a": {"highest": True, "values": [1, 2]}}
DEPENDENT = {"a": [1, 2], "b": {"highest": True, "values": [1, 2], "when": {"a": 1}}}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"restor": "per_trial"}, "restor: unknown key. Did you mean restore?"),
        ({"workloads": workload(promt="x")}, "workloads.0.workload.fixed.promt: unknown key. Did you mean prompt?"),
        ({"workloads": [{**WORKLOAD, "levels": [{"concurrency": 4}]}]}, "give either requests or duration_s"),
        ({"objective": {"level": "concurrency=5"}}, "Did you mean concurrency=4?"),
        ({"objective": {"also": ["ttf_s"]}}, "Did you mean ttft_s"),
        ({"objective": {"also": ["max_rate_per_s"]}}, "can only be objective.metric itself"),
        ({"axes": {"max_num_seqs": []}}, "has no alternatives"),
        ({"axes": {"max_num_seqs": 8}}, "must be a list"),
        ({"axes": {"max_num_seqs": [8, 8]}}, "names '8' twice"),
        ({"axes": {"a": [1], "b": [{"name": "x", "when": ["a"]}]}}, "axis 'b': when is ['a']; write {AXIS"),
        ({"axes": {"b": [{"flags": {"x": 1}}]}}, "axes.b.0.name: Field required"),
        ({"axes": {"b": {"from": 1}}}, "axis 'b': values Field required, from Extra inputs are not permitted"),
        ({"axes": LATER}, "depends on 'dtype'"),
        ({"axes": OTHER}, "Did you mean half?"),
        ({"axes": {"b": [1]}, "highest": ["b"]}, "highest is ['b']; name one axis"),
        ({"axes": {"max_num_seqs": "highest"}}, "has no usual values"),
        ({"axes": TWO_HIGHEST}, "of one axis"),
        ({"axes": {"gpu_memory_utilization": "highest", "a": [1, 2]}, "highest": "a"}, "of one axis"),
        ({"axes": {"dtype": {"highest": True, "values": ["half", "float"]}}}, "needs numbers, not 'half', 'float'"),
        ({"axes": DEPENDENT}, "depend on each other"),
    ],
)
def test_a_mistake_is_complained_of_once_with_what_is_right(keys: dict[str, object], words: str) -> None:
    """A misspelt name is answered with the nearest, what YAML reads as another thing with what to write."""
    head, *lines = complaint(**keys).splitlines()

    assert "mine.yml" in head
    assert [True] == [words in line and len(line) < 300 for line in lines]


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (
            {"concurency": 4, "requests": 8},
            ["levels.0: give concurrency, rate_per_s, stages, max_rate_under or replay"],
        ),
        ({"concurrency": 4, "request": 8}, ["closed.request: unknown key. Did you mean requests"]),
        ({"rate_per_s": 4, "concurrency": 4, "requests": 8}, ["open.concurrency: unknown key. Did you mean max_conc"]),
        ({"rate_per_s": -1, "requests": 8}, ["open.rate_per_s: Input should be greater than 0 (given: -1)"]),
    ],
)
def test_a_mistaken_level_is_complained_of_as_its_kind(level: dict[str, object], words: list[str]) -> None:
    """A load level is the kind that its keys make it; a mistake in it is not reported once for every other kind."""
    lines = complaint(workloads=[{**WORKLOAD, "levels": [level]}]).splitlines()[1:]

    assert len(words) == len(lines)
    assert all(word in line for word, line in zip(words, lines, strict=True))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"objective": {"metric": "cost_per_1m_output_tok"}}, "needs energy.price_per_node_hour"),
        ({"objective": {"metric": "goodput_request_per_s"}}, "needs a limit under slo"),
        ({"objective": {"metric": "max_rate_per_s"}, "slo": {"ttft_p95_ms": 500}}, "needs a level max_rate_under"),
        ({"workloads": [{**WORKLOAD, "levels": WORKLOAD["levels"] * 2}]}, "'hello' has two levels concurrency=4"),
        ({"slo": {"ttft_p99_ms": 500, "tpot_p50_ms": 50}}, "concurrency=4: 8 requests cannot .* give it requests: 100"),
        ({"extra_configs": [{"name": "x"}, {"name": "x", "flags": {"dtype": "half"}}]}, "share the name 'x'"),
    ],
)
def test_a_sweep_that_could_show_nothing_is_refused(keys: dict[str, object], words: str, tmp_path: Path) -> None:
    """What no trial could show, or nobody could distinguish, is refused before anything is launched."""
    (tmp_path / "mine.yml").write_text(yaml.safe_dump({"workloads": [WORKLOAD], **keys}))

    with pytest.raises(SpecError, match=words):
        read_spec("mine", tmp_path)


def test_axis_of_a_choice_is_absent_without_it() -> None:
    """An axis that depends on an alternative of an earlier one is varied with it and left out of other configs."""
    drafts = {"values": [2, 4], "when": {"enable_prefix_caching": True}}
    found = configs(
        spec(model={"name": "m"}, axes={"enable_prefix_caching": [True, False], "block_size": drafts}), None
    )

    assert [
        {"enable_prefix_caching": "true", "block_size": "2"},
        {"enable_prefix_caching": "true", "block_size": "4"},
        {"enable_prefix_caching": "false"},
    ] == [config.choices for config in found]
    assert "block_size" not in found[2].flags


def test_highest_is_a_word_for_the_usual_values() -> None:
    """`gpu_memory_utilization: highest` is the axis of its usual values, and the spec says of which axis it is."""
    found = spec(axes={"gpu_memory_utilization": "highest"})

    assert "gpu_memory_utilization" == found.highest
    assert ["0.8", "0.81", "0.98"] == [found.axes["gpu_memory_utilization"][place].name for place in (0, 1, -1)]
    assert found == parse_spec(found.model_dump(mode="json"), Path("mine.yml"))
