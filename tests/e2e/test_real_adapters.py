"""LoRA adapters on a real vLLM of this machine's CPU, in one sweep from the command to the page.

One adapter is there from the start, one is loaded before the load. The judge is the engine's own log of requests.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml
from tests.e2e.cpu_vllm import ENGINE, ENVIRONMENT, NEEDED, served
from tests.e2e.test_real_engine import TOKENPEAK, Checkout, checkout

from tokenpeak.store.archive import Archive

pytestmark = [pytest.mark.e2e, NEEDED]
__all__ = ["checkout"]

REQUESTS = 40
SHARES = {"base": 1, "held": 2, "loaded": 1}
OF_40 = {"base": 10, "held": 20, "loaded": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two adapters of random weights are."""
    made = tmp_path_factory.mktemp("adapters")
    script = Path(__file__).with_name("made_adapters.py")
    subprocess.run([ENGINE / "python", script, made, "held", "loaded"], check=True)
    return made


def logged(log: str) -> dict[str, int]:
    """How often each adapter was asked for answers of 8 tokens, by an engine's log; others see that it answers."""
    asked = re.findall(r"Received request (?:.*)max_tokens=8,(?:.*)lora_request: (.*)", log)
    names = (re.search(r"lora_name='([^']+)'", each) for each in asked)
    return dict(Counter("base" if name is None else name[1] for name in names))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[tuple[str, Path]]:
    """The address of an engine that holds one adapter and may load others, and its log."""
    flags = ["--dtype", "float32", "--max-model-len", "1024", "--enable-lora", "--max-loras", "2"]
    flags += ["--max-lora-rank", "8", "--lora-modules", f"held={folder}/held", "--enable-log-requests"]
    allowed = {**ENVIRONMENT, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    with served(folder / "log", *flags, environment=allowed) as url:
        yield url, folder / "log"


def test_a_load_asks_adapters_as_the_shares_say(engine: tuple[str, Path], folder: Path, tmp_path: Path) -> None:
    """The engine's log counts what the run records; the second adapter was loaded for it."""
    url, log = engine
    workload = {"kind": "synthetic", "input_tokens": 64, "output_tokens": 8, "adapters": SHARES}
    file = tmp_path / "mixed.json"
    file.write_text(json.dumps({**workload, "adapter_paths": {"loaded": f"{folder}/loaded"}}))
    load = [TOKENPEAK, "load", url, "--workload", str(file), "--concurrency", "4", "--requests", str(REQUESTS)]
    done = subprocess.run([*load, "--format", "json"], capture_output=True, text=True, check=False)

    assert done.stdout, done.stderr
    run = json.loads(done.stdout)
    assert (0, OF_40) == (
        run["summary"]["requests_failed"],
        {each["adapter"]: each["requests_sent"] for each in run["adapters"]},
    )
    assert OF_40 == logged(log.read_text()), log.read_text()[-4000:]


@pytest.fixture(scope="module")
def swept(checkout: Checkout, folder: Path) -> tuple[str, Archive, Path]:
    """What the sweep printed, its archive, and its part of the site."""
    variables = checkout.root / "inventory" / "cpu" / "group_vars" / "all.yml"
    words = 'HF_HUB_OFFLINE: "1"\n'
    allowed = words + '  VLLM_ALLOW_RUNTIME_LORA_UPDATING: "True"\n'
    variables.write_text(variables.read_text().replace(words, allowed, 1))
    mixed = {"kind": "synthetic", "name": "mixed", "input_tokens": 64, "output_tokens": 8, "adapters": SHARES}
    spec = {
        "axes": {"max_loras": [1, 2]},
        "fixed": {
            "name": "fixed",
            "flags": {
                "dtype": "float32",
                "max_model_len": 1024,
                "enforce_eager": True,
                "enable_lora": True,
                "max_lora_rank": 8,
                "lora_modules": [f"held={folder}/held"],
                "enable_log_requests": True,
            },
        },
        "extra_configs": [{"name": "lacking", "flags": {"lora_modules": None}}],
        "workloads": [
            {
                "workload": {**mixed, "adapter_paths": {"loaded": f"{folder}/loaded"}},
                "levels": [{"concurrency": 4, "requests": REQUESTS}],
            }
        ],
        "search": {"baseline": [], "anchor_every": None, "finalists": 0},
        "restore": "per_sweep",
        "quality": False,
        "deadlines": {"engine_ready_s": 800, "run_s": 600},
    }
    (checkout.root / "analysis" / "sweeps" / "adapters.yml").write_text(yaml.safe_dump(spec))
    done = checkout.sweep("--inventory", "cpu", "--sweep", "adapters")

    assert 0 == done.returncode, done.stdout
    archive = Archive(checkout.newest())
    return done.stdout, archive, checkout.root / "site" / "build" / archive.path.name


def test_the_engine_counts_what_was_recorded(swept: tuple[str, Archive, Path]) -> None:
    """By the engine's log each adapter was asked as often as the shares say, and as the requests and the run record."""
    said, archive, _ = swept
    ok = [trial for trial in archive.trials() if trial.status == "ok"]

    assert ["1", "2"] == sorted(trial.config.choices["max_loras"] for trial in ok), said
    for trial in ok:
        requests = pl.read_parquet(archive.requests_path(trial.trial_id)).filter(phase="measured")
        assert OF_40 == dict(Counter(requests["adapter"].to_list()))
        assert [0] * REQUESTS == requests["error"].is_not_null().cast(pl.Int64).to_list()
        log = archive.read_log(trial.trial_id) or ""
        assert OF_40 == logged(log), log[-4000:]
        (run,) = trial.runs
        assert OF_40 == {each.adapter: each.requests_sent for each in run.adapters}
        rates = [each.output_tok_per_s or 0 for each in run.adapters]
        assert run.summary.output_tok_per_s == pytest.approx(sum(rates))


def test_a_server_without_an_adapter_ends_the_trial_before_its_load(swept: tuple[str, Archive, Path]) -> None:
    """The failure says which adapter is missing and which are served."""
    said, archive, _ = swept
    (lacking,) = [trial for trial in archive.trials() if trial.config.name == "lacking"]

    assert lacking.failure is not None
    assert "no adapter 'held'; it serves 'small', 'loaded'" in lacking.failure.message, said
    assert not lacking.runs


def test_the_page_has_a_table_by_adapter(swept: tuple[str, Archive, Path]) -> None:
    """A row for each config and adapter."""
    _, _, built = swept
    page = (built / "load.html").read_text()
    _, found, rest = page.partition("Adapters of mixed")

    assert found
    table = rest[: rest.index("</table>")]
    assert {"base": 2, "held": 2, "loaded": 2} == {name: table.count(f">{name}<") for name in OF_40}
