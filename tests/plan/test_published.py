import pytest
from click.testing import CliRunner

from node_models import known_board, known_model
from plan.published import Comparison, a100x8, median_error, presets, read_rows
from tokenpeak.cli.predict import predict
from tokenpeak.errors import PlanError
from tokenpeak.predict.deployment import Deployment
from tokenpeak.predict.hardware import GIB
from tokenpeak.predict.prediction import UNCERTAINTY
from tokenpeak.predict.profile_run import kv_cache_bytes

Rows = list[Comparison]


@pytest.fixture(scope="module")
def of_presets() -> Rows:
    """The rows of the presets' table, with their predictions."""
    return list(presets())


@pytest.fixture(scope="module")
def of_a100() -> Rows:
    """The rows of the table of A100 runs, with their predictions."""
    return list(a100x8())


@pytest.mark.parametrize("table", ["of_presets", "of_a100"])
def test_is_as_wrong_as_it_says(table: str, request: pytest.FixtureRequest) -> None:
    """At least 70% of the published speeds lie within the stated 80% interval; the stated width is honest."""
    rows: Rows = request.getfixturevalue(table)
    inside = sum(1 / (1 + UNCERTAINTY) <= row.ratio <= 1 + UNCERTAINTY for row in rows)

    assert inside / len(rows) >= 0.7


def test_throughput_and_first_tokens_of_published_runs(of_presets: Rows, of_a100: Rows) -> None:
    """No constant leans on these: throughput of whole runs is off by a sixth at most in the median, TTFT, too."""
    for rows in (of_presets, of_a100):
        assert median_error([row.output_tok_per_s for row in rows]) < 1 / 6
    first = [row.ttft_s for row in of_a100 if row.ttft_s is not None]

    assert len(first) == 4
    assert median_error(first) < 1 / 6


def predicted(*options: str) -> str:
    """What the command says of an 8B model on one or more H100."""
    arguments = ["meta-llama/Llama-3.1-8B-Instruct", *options]
    return CliRunner().invoke(predict, arguments, catch_exceptions=False).output


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--tensor-parallel", "3"], "tensor_parallel_size 3 does not divide the model's 32 attention heads"),
        (["--input-tokens", "500000"], "max_model_len 500,300 is beyond the model's 131,072"),
        (["--gpu", "Tesla V100-PCIE-32GB"], "vLLM 0.32.0 is built with a torch that has no kernels"),
    ],
)
def test_a_set_up_that_the_engine_refuses_has_no_speed(options: list[str], why: str) -> None:
    """What a plan would drop is not predicted, and the reason is given."""
    said = predicted(*options).replace("\n", " ")

    assert f"cannot run: {why}" in said
    assert "tok/s" not in said


@pytest.mark.parametrize("release", ["0.8.5", "0.32.0"])
def test_a_flag_that_is_off(release: str) -> None:
    """`FLAG=false` is the engine's own `--no-FLAG`, of a flag that is off without it, too."""
    plain, off = (predicted("--release", release, *words) for words in ((), ("--set", "enforce_eager=false")))

    assert plain == off
    assert plain != predicted("--release", release, "--set", "enforce_eager=true")


def test_a_flag_that_there_is_not_is_refused() -> None:
    """A misspelled flag would give the figures of another config."""
    with pytest.raises(PlanError, match=r"max_model_lenn.*Did you mean max_model_len"):
        predicted("--set", "max_model_lenn=4096")


ROWS = read_rows("gtc-h200-llama70b-fp8")
NAMES = [row["config"] for row in ROWS]


def published(row: dict[str, str]) -> tuple[Deployment, float, float]:
    model, gpu = known_model("nvidia/Llama-3.1-70B-Instruct-FP8"), known_board("NVIDIA H200")
    deployment = Deployment(
        model=model,
        gpu=gpu,
        engine_version="0.14.1",
        graphs_reserved=False,
        max_num_seqs=int(row["max_num_seqs"]),
        max_num_batched_tokens=int(row["max_num_batched_tokens"]),
    )
    return deployment, float(row["gpu_memory_utilization"]), float(row["kv_cache_gib"])


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_predicts_the_published_kv_cache(row: dict[str, str]) -> None:
    """Physical constants alone, none adjusted to these rows, come within 5% of each."""
    deployment, utilization, gib = published(row)

    assert pytest.approx(gib, rel=0.05) == kv_cache_bytes(deployment, utilization) / GIB
