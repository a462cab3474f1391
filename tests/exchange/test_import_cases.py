"""Result files of other tools, each with the values that are right, and variants of its kind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.foreign import Import
from tokenpeak.exchange.sources import read_sources

CASES = Path(__file__).parent / "cases"
FIXTURES = Path(__file__).parent / "fixtures"


def imported(*paths: Path) -> Import:
    """The import of these files."""
    return read_sources(paths)[0]


def changed(source: Path, folder: Path, name: str = "", **keys: object) -> Path:
    """A copy of a JSON file with these keys changed; None takes one out."""
    raw = json.loads(source.read_text())
    target = folder / (name or source.name)
    target.write_text(json.dumps({k: v for k, v in {**raw, **keys}.items() if v is not None}))
    return target


def test_guidellm_requests_in_flight_at_the_end_did_not_fail() -> None:
    """120 of 420 requests were in flight when the time was over: 300 of 300 ended well, and the import says so."""
    found = imported(CASES / "guidellm-incomplete" / "report.json")
    summary = found.runs[0].summary

    assert (300, 300, 0) == (summary.requests_sent, summary.requests_ok, summary.requests_failed)
    assert any("120 requests in flight at the end" in words for words in found.imported.unmapped)


def test_guidellm_at_a_rate() -> None:
    """The rate is the load; the pool's size is no cap of requests in flight."""
    (run,) = imported(CASES / "guidellm-poisson" / "report.json").runs

    assert (5.0, None) == (run.level.rate_per_s, run.level.concurrency)
    assert (704.0, 0) == (run.summary.output_tok_per_s, run.summary.requests_failed)


def test_guidellm_requests_that_failed_are_failed(tmp_path: Path) -> None:
    """An error counts as failed beside requests in flight, which do not."""
    raw = json.loads((CASES / "guidellm-incomplete" / "report.json").read_text())
    totals = {"successful": 300, "errored": 20, "incomplete": 100, "total": 420}
    raw["benchmarks"][0]["metrics"]["request_totals"] = totals
    path = tmp_path / "report.json"
    path.write_text(json.dumps(raw))
    summary = imported(path).runs[0].summary

    assert (320, 300, 20) == (summary.requests_sent, summary.requests_ok, summary.requests_failed)


def test_guidellm_writes_yaml_too(tmp_path: Path) -> None:
    """Its YAML gives what its JSON gives; in a folder of both it is not read twice; infinities are unknown."""
    (short,) = imported(CASES / "guidellm-yaml" / "benchmarks.yaml").runs
    raw = json.loads((FIXTURES / "guidellm.json").read_text())
    raw["benchmarks"][0]["metrics"]["request_latency"]["successful"]["std_dev"] = float("inf")
    (tmp_path / "benchmarks.yaml").write_text(yaml.safe_dump(raw))
    alone = imported(tmp_path).runs
    (tmp_path / "benchmarks.json").write_text((FIXTURES / "guidellm.json").read_text())
    (kept,) = imported(tmp_path).runs

    assert (10, 0) == (short.summary.requests_ok, short.summary.requests_failed)
    assert [kept.summary.ttft_s] == [run.summary.ttft_s for run in alone]
    assert [None] == [run.summary.latency_s.std for run in alone]


def test_yaml_that_is_no_report_says_what_it_may_be(tmp_path: Path) -> None:
    """A mapping file among results is refused in a sentence."""
    path = tmp_path / "mapping.yml"
    path.write_text("id: a\n")

    with pytest.raises(ArchiveError, match="no report of GuideLLM"):
        imported(path, FIXTURES / "guidellm.json")


def test_sglang_bench_serving(tmp_path: Path) -> None:
    """The tool is SGLang, with latency and totals; appended results are runs each, and details give requests."""
    source = CASES / "sglang-jsonl" / "result.jsonl"
    found = imported(source)
    (run,) = found.runs
    folder = tmp_path / "results"
    folder.mkdir()
    faster = changed(source, tmp_path, max_concurrency=128, model_id="acme/small-1b").read_text()
    (folder / "result.jsonl").write_text(f"{source.read_text().strip()}\n{faster}\n")
    first, second = imported(folder).runs

    assert ("SGLang", "sglang") == (found.imported.tool, run.engine_version)
    assert (5.0, 4.9, 6.0) == (run.summary.latency_s.mean, run.summary.latency_s.p50, run.summary.latency_s.p99)
    assert (26214.4, 13107.2) == (run.summary.total_tok_per_s, run.summary.output_tok_per_s)
    assert 64 == run.level.concurrency
    assert (64, 128) == (first.level.concurrency, second.level.concurrency)
    assert "acme/small-1b" == second.model


def test_sglang_with_details_counts_what_failed(tmp_path: Path) -> None:
    """A detailed result lists each request, so that those which failed can be counted."""
    lists = {
        "input_lens": [8, 8, 8],
        "output_lens": [2, 2, 0],
        "ttfts": [0.1, 0.2, 0.0],
        "itls": [[0.01], [0.02], []],
        "errors": ["", "", "timeout"],
    }
    path = changed(CASES / "sglang-jsonl" / "result.jsonl", tmp_path, completed=2, backend="vllm", **lists)
    (run,) = imported(path).runs

    assert (3, 2, 1) == (run.summary.requests_sent, run.summary.requests_ok, run.summary.requests_failed)
    assert run.engine_version is None


def test_sglang_prints_the_block_too(tmp_path: Path) -> None:
    """The printed block has its own words for latency, totals and load."""
    path = tmp_path / "out.log"
    path.write_text(
        "============ Serving Benchmark Result ============\n"
        "Backend:                                 sglang\nTraffic request rate:                    inf\n"
        "Max request concurrency:                 64\nSuccessful requests:                     640\n"
        "Benchmark duration (s):                  50.00\nTotal input tokens:                      655360\n"
        "Total generated tokens:                  655360\nOutput token throughput (tok/s):         13107.20\n"
        "Total token throughput (tok/s):          26214.40\n----------------End-to-End Latency----------------\n"
        "Mean E2E Latency (ms):                   5000.00\nP99 E2E Latency (ms):                    6000.00\n"
        "==================================================\n"
    )
    found = imported(path)
    (run,) = found.runs

    assert "SGLang" == found.imported.tool
    assert (5.0, 6.0, 64) == (run.summary.latency_s.mean, run.summary.latency_s.p99, run.level.concurrency)
    assert 26214.4 == run.summary.total_tok_per_s


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        ({}, None),
        ({"image": "vllm/vllm-openai:v0.11.0"}, "0.11.0"),
        ({"image": "vllm/vllm-openai:nightly"}, None),
        ({"framework": "sglang", "image": "lmsysorg/sglang:v0.5.5"}, "sglang"),
    ],
)
def test_a_framework_is_no_engine_version(keys: Mapping[str, Any], version: str | None, tmp_path: Path) -> None:
    """Of vLLM the image's tag may name the release; another engine stands under its name."""
    (run,) = imported(changed(CASES / "inferencex-single" / "agg.json", tmp_path, **keys)).runs

    assert version == run.engine_version
    assert (3600.0, 7200.0) == (run.summary.output_tok_per_s, run.summary.total_tok_per_s)


DISAGGREGATED = {
    "tp": None,
    "ep": None,
    "disagg": True,
    "is_multinode": True,
    "framework": "dynamo-trt",
    "spec_decoding": "mtp",
    "prefill_tp": 4,
    "prefill_ep": 4,
    "prefill_dp_attention": "true",
    "prefill_num_workers": 2,
    "decode_tp": 8,
    "decode_ep": 1,
    "decode_dp_attention": "false",
    "decode_num_workers": 3,
    "tput_per_gpu": 900.0,
    "output_tput_per_gpu": 600.0,
    "input_tput_per_gpu": 1800.0,
}


@pytest.mark.parametrize("counts", [{"num_prefill_gpu": 8, "num_decode_gpu": 24}, {}])
def test_disaggregated_results_of_inferencex(counts: Mapping[str, int], tmp_path: Path) -> None:
    """Throughputs are per GPU of their own stage: output of decode, input of prefill, their sum of all."""
    source = CASES / "inferencex-single" / "agg.json"
    found = imported(changed(source, tmp_path, **DISAGGREGATED, **counts))
    (run,), (node,) = found.runs, found.nodes

    assert 32 == node.count
    assert 24 * 600.0 == run.summary.output_tok_per_s
    assert 8 * 1800.0 == run.summary.input_tok_per_s
    assert 32 * 900.0 == run.summary.total_tok_per_s
    assert "dynamo-trt, fp4, mtp, prefill 2x tp4 ep4 dp_attention, decode 3x tp8" == run.config


def test_silent_files_of_one_load_are_configs_by_name() -> None:
    """Three files of one load that do not say their flags are three configs of one workload, with a warning."""
    found = imported(CASES / "unsaid-tp")

    assert {"tp2_c64": 4100.0, "tp4_c64": 4600.0, "tp8_c64": 3000.0} == {
        run.config: run.summary.output_tok_per_s for run in found.runs
    }
    assert 1 == len({run.workload.name for run in found.runs})
    assert "named by its file" in found.imported.cautions[0]


def test_silent_files_of_one_name_are_configs_by_folder(tmp_path: Path) -> None:
    """Files of one name are apart by their folders."""
    paths = []
    for name in ("tp2", "tp4"):
        (tmp_path / name).mkdir()
        paths.append(changed(CASES / "unsaid-tp" / f"{name}_c64.json", tmp_path / name, "result.json"))

    assert ["tp2", "tp4"] == [run.config for run in imported(*paths).runs]


def test_silent_files_of_other_loads_are_one_config(tmp_path: Path) -> None:
    """A curve over load stays one config, with a warning that it counts as one."""
    source = CASES / "unsaid-tp" / "tp2_c64.json"
    paths = [changed(source, tmp_path, f"c{count}.json", max_concurrency=count) for count in (8, 16, 32)]
    found = imported(*paths)

    assert {"as-run"} == {run.config for run in found.runs}
    assert "one config at different loads" in found.imported.cautions[0]


def test_metadata_is_a_flag_where_an_engine_has_it(tmp_path: Path) -> None:
    """`--metadata` names flags and whatever else a user likes; only the flags become flags."""
    source = CASES / "unsaid-tp" / "tp2_c64.json"
    said = {"tp": "4", "enable_prefix_caching": "false", "team": "search", "seed": "7", "run_number": "3"}
    found = imported(changed(source, tmp_path, "a.json", **said), changed(source, tmp_path, "b.json", label="new"))
    first, second = found.runs

    assert {"tensor_parallel_size": 4, "enable_prefix_caching": False} == first.flags
    assert "tensor_parallel_size=4, enable_prefix_caching=false" == first.config
    assert {"team", "seed", "run_number"} <= set(found.imported.unmapped)
    assert ("new", {}) == (second.config, second.flags)
    assert () == found.imported.cautions


def test_a_sweep_takes_only_engine_flags(tmp_path: Path) -> None:
    """Named combinations hide which keys are the client's: of all keys only engine flags are the server's."""
    source = CASES / "unsaid-tp" / "tp2_c64.json"
    folder = tmp_path / "SERVE--big-BENCH--chat"
    folder.mkdir()
    keys = {"run_number": 0, "_benchmark_name": "big", "max_num_seqs": 64, "temperature": 0.5, "ignore_eos": True}
    changed(source, folder, "run=0.json", **keys)
    (run,) = imported(tmp_path).runs

    assert ("big", {"max_num_seqs": 64}) == (run.config, run.flags)


def test_a_sweep_over_workloads_is_read(tmp_path: Path) -> None:
    """`vllm bench sweep serve_workload` names the load in the folder, after the server's settings."""
    source = CASES / "unsaid-tp" / "tp2_c64.json"
    for count in (8, 16):
        folder = tmp_path / f"SERVE--max_num_seqs=64-WL--max_concurrency={count}"
        folder.mkdir()
        changed(source, folder, "run=0.json", run_number=0, max_num_seqs=64, max_concurrency=count)
    runs = imported(tmp_path).runs

    assert {("max_num_seqs=64", 8), ("max_num_seqs=64", 16)} == {(run.config, run.level.concurrency) for run in runs}


@pytest.mark.parametrize("name", ["failed", "no-failed-key"])
def test_requests_that_failed(name: str) -> None:
    """512 of 640 ended well, whether the file counts the others or not."""
    (path,) = (CASES / f"vllm-{name}").iterdir()
    summary = imported(path).runs[0].summary

    assert (640, 512, 128) == (summary.requests_sent, summary.requests_ok, summary.requests_failed)


@pytest.mark.parametrize("command", ["latency", "throughput"])
def test_offline_benchmarks_are_refused_with_what_is_read(command: str) -> None:
    """The sentence names the command and lists what is read."""
    (path,) = (CASES / f"vllm-{command}").iterdir()

    with pytest.raises(ArchiveError, match=rf"vllm bench {command}, which is not read. Read are: .*SGLang.*GuideLLM"):
        imported(path)


def test_a_sweep_of_startups_is_refused_with_what_is_read(tmp_path: Path) -> None:
    """`vllm bench sweep startup` leaves files of the same names, which hold no load."""
    folder = tmp_path / "SERVE--a"
    folder.mkdir()
    (folder / "run=0.json").write_text(json.dumps({"avg_cold_startup_time": 30.0, "run_number": 0}))

    with pytest.raises(ArchiveError, match=r"Read are: .* vllm bench sweep serve"):
        imported(tmp_path)


def phases(*given: Mapping[str, object]) -> dict[str, Any]:
    """AIPerf's export with other phases."""
    raw: dict[str, Any] = json.loads((FIXTURES / "profile_export_aiperf.json").read_text())
    raw["input_config"]["phases"] = list(given)
    return raw


WARM_UP = {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 2, "exclude_from_results": True}
PROFILING = {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 8}


@pytest.mark.parametrize(
    ("given", "concurrency"),
    [
        ([WARM_UP, PROFILING], 8),
        ([PROFILING, {**WARM_UP, "name": "cooldown", "kind": "profiling"}], 8),
        ([{"name": "warmup", "concurrency": 2}, PROFILING, {"name": "warmup", "concurrency": 3}], 8),
        ([PROFILING, {**PROFILING, "name": "more", "concurrency": 16}], None),
    ],
)
def test_excluded_phases_of_aiperf_are_no_load(
    given: list[Mapping[str, object]], concurrency: int | None, tmp_path: Path
) -> None:
    """The load is that of the phase whose requests count, wherever it stands; of several that count, none."""
    path = tmp_path / "profile_export_aiperf.json"
    path.write_text(json.dumps(phases(*given)))

    assert concurrency == imported(path).runs[0].level.concurrency


def test_aiperf_without_a_counted_phase_is_no_result(tmp_path: Path) -> None:
    """Where each phase is excluded there is nothing to import."""
    path = tmp_path / "profile_export_aiperf.json"
    path.write_text(json.dumps(phases(WARM_UP)))

    with pytest.raises(ArchiveError, match="each phase is excluded"):
        imported(path)
