"""Real files of each tool become runs with the figures that the tool printed, and say what they leave out."""

import json
import re
from pathlib import Path

import pytest

from tokenpeak.errors import ArchiveError
from tokenpeak.exchange.assemble import write_import
from tokenpeak.exchange.foreign import Import
from tokenpeak.exchange.sources import read_sources
from tokenpeak.report import SweepView, open_archive
from tokenpeak.report.compare import tools
from tokenpeak.store.frames import open_frames

FIXTURES = Path(__file__).parent / "fixtures"


def imported(*names: str) -> Import:
    """The import of these fixtures."""
    return read_sources([FIXTURES / name for name in names])[0]


def test_plain_results_of_vllm_bench() -> None:
    """Counts, throughputs and latencies are the file's, in our units; the load is known."""
    raw = json.loads((FIXTURES / "vllm-plain.json").read_text())
    (run,) = imported("vllm-plain.json").runs
    summary = run.summary

    assert "concurrency=8" == run.level.label
    assert 8 == run.level.concurrency
    assert run.level.rate_per_s is None
    assert 96 == summary.requests_sent
    assert 96 == summary.requests_ok
    assert 0 == summary.requests_failed
    assert (
        raw["output_throughput"]
        == summary.output_tok_per_s
        == pytest.approx((summary.output_tokens or 0) / (summary.duration_s or 1))
    )
    assert raw["median_ttft_ms"] / 1000 == pytest.approx(summary.ttft_s.p50)
    assert raw["p99_itl_ms"] / 1000 == pytest.approx(summary.itl_s.p99)
    assert raw["mean_e2el_ms"] / 1000 == pytest.approx(summary.latency_s.mean)
    assert run.requests is None


def test_detailed_results_of_vllm_bench(tmp_path: Path) -> None:
    """The requests of a detailed file give its own latencies again, and lie beside the archive's trial."""
    raw = json.loads((FIXTURES / "vllm-detailed.json").read_text())
    found = imported("vllm-detailed.json")
    (run,) = found.runs
    assert run.requests is not None
    ttft = run.requests["first_token_s"] - run.requests["sent_s"]
    frames = open_frames(write_import(found, tmp_path, sweep_id="detailed").path)

    assert "rate=8/s" == run.level.label
    assert raw["mean_ttft_ms"] / 1000 == pytest.approx(ttft.mean())
    assert raw["total_output_tokens"] == run.requests["output_tokens"].sum()
    assert raw["num_prompts"] == frames.requests.collect().height
    assert frames.runs["goodput_request_per_s"][0] == pytest.approx(raw["request_goodput"])


@pytest.mark.parametrize("between", ["\n", ""])
def test_appended_results_are_several_runs(between: str, tmp_path: Path) -> None:
    """--append-result leaves objects one after the other."""
    text = (FIXTURES / "vllm-plain.json").read_text().strip()
    path = tmp_path / "appended.json"
    path.write_text(between.join([text, text, text]))
    found, _ = read_sources([path])

    assert 3 == len(found.runs)
    assert [0, 1, 2] == sorted(trial.replicate for trial in write_import(found, tmp_path, sweep_id="three").trials())


@pytest.mark.parametrize("flat", [False, True])
def test_printed_blocks(flat: bool, tmp_path: Path) -> None:
    """The printed block gives what the JSON of the same run gives, to its two digits, even without line breaks."""
    text = (FIXTURES / "vllm-printed.txt").read_text()
    path = tmp_path / "printed.txt"
    path.write_text(re.sub(r"\s+", " ", text) if flat else text)
    (printed,), (kept,) = read_sources([path])[0].runs, imported("vllm-plain.json").runs

    assert kept.level.concurrency == printed.level.concurrency
    for name in ("requests_ok", "input_tokens", "output_tokens"):
        assert getattr(kept.summary, name) == getattr(printed.summary, name)
    assert kept.summary.output_tok_per_s == pytest.approx(printed.summary.output_tok_per_s, abs=0.0051)
    assert kept.summary.ttft_s.p99 == pytest.approx(printed.summary.ttft_s.p99, abs=5.1e-6)
    assert kept.summary.tpot_s.mean == pytest.approx(printed.summary.tpot_s.mean, abs=5.1e-6)


def test_folders_of_auto_tune(tmp_path: Path) -> None:
    """Each log is a run; the sustainable rate is distinguished from those tried before it."""
    folder = tmp_path / "2026_11_21_12_00"
    folder.mkdir()
    block = (FIXTURES / "vllm-printed.txt").read_text()
    for seqs, rate in (("128", "inf"), ("128", "9"), ("128", "8"), ("256", "inf")):
        (folder / f"bm_log_{seqs}_2048_requestrate_{rate}.txt").write_text(block)
    (folder / "result.txt").write_text(
        "hash:0123\n"
        "max_num_seqs: 128, max_num_batched_tokens: 2048, request_rate: 8, e2el: 376.14, "
        "throughput: 28.3, goodput: 28\n"
        "max_num_seqs: 256, max_num_batched_tokens: 2048 does not meet latency requirement 10\n"
        "best_max_num_seqs: 128, best_num_batched_tokens: 2048, best_throughput: 28.3, profile saved in: /p\n"
    )
    runs = read_sources([folder])[0].runs

    assert {("128", None, False), ("128", 9.0, False), ("128", 8.0, True), ("256", None, False)} == {
        (run.choices["max_num_seqs"], run.level.rate_per_s, run.slo_met) for run in runs
    }


def test_folders_of_vllm_bench_sweep() -> None:
    """Each measured run is there under its server's flags and its load; summaries and warm-ups repeat nothing."""
    found = imported("vllm-sweep")
    throughput = {
        (run.config, run.level.label): run.summary.output_tok_per_s
        for run in found.runs
        if run.flags["max_num_seqs"] == int(run.choices["max_num_seqs"])
    }
    raws = [json.loads(path.read_text()) for path in (FIXTURES / "vllm-sweep").glob("*/run=*.json")]

    assert {
        (f"max_num_seqs={raw['max_num_seqs']}", f"concurrency={raw['max_concurrency']}"): raw["output_throughput"]
        for raw in raws
    } == throughput
    assert 4 == len(throughput)
    assert any("one launch" in words for words in found.imported.differences)


def test_reports_of_guidellm() -> None:
    """Its inter-token latency is our TPOT; its time per output token, which counts TTFT in, is listed as left out."""
    metrics = json.loads((FIXTURES / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    found = imported("guidellm.json")
    (run,) = found.runs

    assert (8, "tiny") == (run.level.concurrency, run.model)
    assert metrics["inter_token_latency_ms"]["successful"]["mean"] / 1000 == pytest.approx(run.summary.tpot_s.mean)
    assert metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p99"] / 1000 == pytest.approx(
        run.summary.ttft_s.p99
    )
    assert run.summary.itl_s.mean is None
    assert (96, 3072) == (run.summary.requests_ok, run.summary.output_tokens)
    assert any("time_per_output_token_ms" in words for words in found.imported.unmapped)
    assert any("our TPOT" in words for words in found.imported.differences)


def test_summaries_of_aiperf() -> None:
    """Units are converted, its inter-token latency is TPOT, its inter-chunk latency ITL, and its warm-up no load."""
    raw = json.loads((FIXTURES / "profile_export_aiperf.json").read_text())
    found = imported("profile_export_aiperf.json")
    (run,) = found.runs

    assert ("concurrency=8", "tiny") == (run.level.label, run.model)
    assert raw["inter_token_latency"]["avg"] / 1000 == pytest.approx(run.summary.tpot_s.mean)
    assert raw["inter_chunk_latency"]["p99"] / 1000 == pytest.approx(run.summary.itl_s.p99)
    assert raw["benchmark_duration"]["avg"] == pytest.approx(run.summary.duration_s)
    assert raw["output_token_throughput"]["avg"] == pytest.approx(run.summary.output_tok_per_s)
    assert "time_to_second_token" in found.imported.unmapped


def test_aggregates_of_inferencex(tmp_path: Path) -> None:
    """Figures per GPU become the node's, nodes have their devices, and missing figures stay missing."""
    frames = open_frames(write_import(imported("inferencex.json"), tmp_path, sweep_id="x").path)
    first, second = frames.runs.sort("output_tok_per_s", descending=True).iter_rows(named=True)

    assert 8 * 755.5 == first["output_tok_per_s"]
    assert 0.142 == first["ttft_s_mean"]
    assert 0.0101 == first["tpot_s_mean"]
    assert 0.91 == first["energy_j_per_output_tok"]
    assert {"8x NVIDIA H200", "8x AMD Instinct MI300X"} == set(frames.runs["hardware"])
    assert second["tpot_s_mean"] is None
    assert second["requests_ok"] is None


def test_tables_by_a_mapping(tmp_path: Path) -> None:
    """Any CSV becomes an archive; a column that nothing takes is listed."""
    found, own = read_sources([FIXTURES / "table" / "mapping.yml"])
    runs = open_frames(write_import(found, tmp_path, sweep_id=own).path).runs

    assert "my-old-benchmark" == own
    assert [512.5, 1433.1] == runs["output_tok_per_s"].to_list()
    assert [0.0412, 0.088] == pytest.approx(runs["ttft_s_mean"].to_list())
    assert ["8", "64"] == runs["axis_max_num_seqs"].to_list()
    assert ("results.csv: remark",) == found.imported.unmapped


FOUR = ("vllm-plain.json", "guidellm.json", "profile_export_aiperf.json", "tokenpeak.json")
TOOLS = {"vllm-bench", "guidellm", "aiperf", "tokenpeak"}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> SweepView:
    """One workload that four tools measured against the same real engine: 96 requests, 128 in and 32 out, 8 at once."""
    return open_archive(write_import(imported(*FOUR), tmp_path_factory.mktemp("four"), sweep_id="four").path)


def test_one_workload_by_four_tools(four: SweepView) -> None:
    """Runs of four tools stand side by side in one table: the same requests, tokens and load, each figure of each."""
    payload = tools.blocks(four)[0].payload()

    assert set(four.axes["tool"]) == TOOLS
    assert [column["key"] for column in payload["columns"]][3:-1] == list(four.axes["tool"])
    assert {"Output throughput", "Time to first token p50", "Mean time per output token"} <= {
        row[1]["text"] for row in payload["rows"]
    }
    assert {(96, 3072, "concurrency=8")} == set(four.runs.select("requests_ok", "output_tokens", "level_label").rows())
    assert 12298 >= four.runs["input_tokens"].max() >= four.runs["input_tokens"].min() >= 12288  # type: ignore[operator]


def test_differences_between_tools_are_explained(four: SweepView) -> None:
    """Each tool's throughput is taken apart into factors that give it again, and each definition is distinguished."""
    _, explained, *notes = (block.payload() for block in tools.blocks(four))
    keys = [column["key"] for column in explained["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in explained["rows"]]
    found = " ".join(part for each in notes for part in each["parts"])

    assert {row["tool"]["text"] for row in rows} == TOOLS
    for row in rows:
        product = row["in_flight"]["value"] * row["tokens"]["value"] / row["latency_ms"]["value"] * 1000
        assert product == pytest.approx(row["output_tok_per_s"]["value"], rel=0.01)
        assert 5 < row["in_flight"]["value"] <= 8.01
        assert row["ttft_ms"]["value"] + row["rest_ms"]["value"] == pytest.approx(row["latency_ms"]["value"])
        assert row["whole_ms"]["value"] > row["tpot_ms"]["value"]
    assert all("latency" in row["against"]["text"] for row in rows[1:])
    assert "–" == rows[0]["against"]["text"]
    for words in (
        "GuideLLM's inter-token latency is (last − first token) ÷ (tokens − 1)",
        "time per output token counts TTFT in",
        "AIPerf's inter-token latency is (latency − TTFT) ÷ (tokens − tokens of the first chunk)",
        "count from when a request was sent",
        "whose own work slows what it measures",
    ):
        assert words in found


def test_an_archive_is_not_replaced(tmp_path: Path) -> None:
    """A second import of one name is refused, and the first stays."""
    found = imported("vllm-plain.json")
    first = write_import(found, tmp_path, sweep_id="one")

    with pytest.raises(ArchiveError, match="exists already"):
        write_import(found, tmp_path, sweep_id="one")
    assert 1 == open_frames(first.path).trials.height


def test_a_run_without_an_answer_has_no_latency(tmp_path: Path) -> None:
    """Where no request ended well the tool writes zeros; they are no measurements."""
    raw = json.loads((FIXTURES / "vllm-plain.json").read_text())
    zero = {key: 0.0 if key.endswith("_ms") or "throughput" in key else value for key, value in raw.items()}
    path = tmp_path / "failed.json"
    path.write_text(json.dumps({**zero, "completed": 0, "failed": 96, "total_output_tokens": 0}))
    summary = read_sources([path])[0].runs[0].summary

    assert 0 == summary.requests_ok
    assert 96 == summary.requests_failed
    assert 0.0 == summary.output_tok_per_s
    assert summary.ttft_s.mean is None
    assert summary.latency_s.p99 is None
