"""A spec says what is wrong with it; one with a secret is refused before anything runs, but a recorded one is read."""

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak.errors import SpecError
from tokenpeak.plan.matrix import configs
from tokenpeak.spec.sweep import SweepSpec, parse_spec, read_spec
from tokenpeak.spec.window import parse_window

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


SECRET = "Zq7Wm2Xc9Vb4Nk1Lp"
SECRETS: dict[str, dict[str, Any]] = {
    "a token of the hub": {"fixed": {"name": "fixed", "env": {"HF_TOKEN": SECRET}}},
    "a password": {"fixed": {"name": "fixed", "env": {"PROXY_PASSWORD": SECRET}}},
    "a token under another name": {"fixed": {"name": "fixed", "env": {"VLLM_THING": "hf_" + SECRET * 2}}},
    "a proxy's password": {"fixed": {"name": "fixed", "env": {"HTTPS_PROXY": f"http://bob:{SECRET}@proxy:3128"}}},
    "the engine's API key": {"fixed": {"name": "fixed", "flags": {"api_key": SECRET}}},
    "an alternative's environment": {"axes": {"a": [{"name": "x", "env": {"HF_TOKEN": SECRET}}]}},
    "an argument within a value": {"fixed": {"name": "fixed", "flags": {"extra": f"--token {SECRET}"}}},
    "the URL of a server": {"endpoint": {"url": f"http://router:8000/v1?api_key={SECRET}", "model": "m"}},
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_refused_without_being_repeated(name: str, tmp_path: Path) -> None:
    """The complaint names the place and the file that it belongs into, and does not repeat the secret."""
    (tmp_path / "mine.yml").write_text(yaml.safe_dump({**SECRETS[name], "workloads": [WORKLOAD]}))

    with pytest.raises(SpecError, match="tokenpeak_engine_env_file") as refused:
        read_spec("mine", tmp_path)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", SECRETS)
def test_a_recorded_spec_stays_readable(name: str) -> None:
    """An archive that an older TokenPeak wrote is read and resumed, whatever is in it."""
    parse_spec({**copy.deepcopy(SECRETS[name]), "workloads": [WORKLOAD]}, Path("sweep.json"))


@pytest.mark.parametrize(
    "given",
    [
        {"env": {"TOKENIZERS_PARALLELISM": "false", "VLLM_USE_V1": "1", "VLLM_TOKEN_LIMIT": "2048"}},
        {"flags": {"max_num_batched_tokens": 512, "tokenizer": "meta-llama/Llama-3.1-8B", "skip_tokenizer_init": True}},
        {"flags": {"enable_prompt_tokens_details": True, "tokenizer_mode": "auto", "chat_template": "/a/b.jinja"}},
    ],
)
def test_what_is_no_secret_is_taken(given: dict[str, Any], tmp_path: Path) -> None:
    """Tokens that are counted and tokenizers are no secrets."""
    raw = {"fixed": {"name": "fixed", **given}, "workloads": [WORKLOAD], "description": "The password: is none."}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(raw))

    assert "mine" == read_spec("mine", tmp_path).name


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-11-20T19:29:59", False),
        ("2026-11-20T19:30:00", True),
        ("2026-11-20T23:29:59", True),
        ("2026-11-20T23:30:00", False),
    ],
)
def test_window_is_in_its_own_zone(now: str, is_open: bool) -> None:
    """Five and a half hours east, one at night is half past seven in the evening in UTC."""
    window = parse_window("01:00-05:00 Asia/Kolkata")

    assert is_open == (window.current(at(now)) is not None)


def test_window_past_midnight() -> None:
    """A window may end on the day after it began, and is open on both sides of midnight."""
    window = parse_window("22:00-05:30 UTC")
    night = (at("2026-11-20T22:00"), at("2026-11-21T05:30"))

    assert [night, night] == [window.current(at("2026-11-20T23:00")), window.current(at("2026-11-21T05:00"))]
    assert at("2026-11-21T22:00") == window.next_opening(at("2026-11-21T05:00"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("01:00-05:00", "write hours and a time zone"),
        ("1-5 UTC", "write hours and a time zone"),
        ("01:00-05:00 Asia/Kolkatta", "Did you mean Asia/Kolkata"),
        ("25:00-05:00 UTC", "hour must be in 0..23"),
        ("01:00-01:00 UTC", "begins when it ends"),
    ],
)
def test_what_is_no_window(text: str, complaint: str) -> None:
    """The complaint names the value and what is valid."""
    with pytest.raises(ValueError, match=complaint):
        parse_window(text)
