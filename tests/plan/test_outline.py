"""The plan's one line: what the sweep will do, and what production pays for it."""

import json
import re

import pytest
from click.testing import CliRunner

from tokenpeak.cli.plan import plan


@pytest.fixture(autouse=True)
def never_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No probe of an earlier run is found."""
    monkeypatch.setenv("TOKENPEAK_STATE", str(tmp_path))


def printed(*arguments: str) -> str:
    """What `tokenpeak plan` prints."""
    return CliRunner().invoke(plan, list(arguments), catch_exceptions=False).stdout


@pytest.mark.integration
def test_the_published_case_takes_less_than_an_hour() -> None:
    """Ten launches and three finalists by default; the grid of all 72 stays to be asked for, with its price."""
    said = printed("--inventory", "v100")
    [line] = [each for each in said.splitlines() if each.startswith("will do: ")]
    document = json.loads(printed("--inventory", "v100", "--format", "json"))

    assert document["estimate"]["duration_s"] < 3600
    assert document["estimate"]["trials"] < len(document["feasible"])
    assert re.match(
        rf"will do: an adaptive search makes {document['estimate']['trials']} launches with 72 configs to choose from, "
        rf"in \d+ min; production of v100-1 is stopped {document['estimate']['trials']} times, for \d+ min in all\. ",
        line,
    )
    assert "search: {strategy: grid} would make 7" in line
    assert line.removeprefix("will do: ") in document["notes"]


def test_nights_of_a_window_are_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A sweep longer than its window goes on the next night."""
    path = tmp_path_factory.mktemp("spec") / "nightly.yml"
    path.write_text(
        "window: 23:30-00:00 Asia/Kolkata\n"
        "axes: {max_num_seqs: [8, 16, 32, 64]}\n"
        "fixed: {name: fixed, flags: {dtype: float16, max_model_len: 2048, tensor_parallel_size: 4}}\n"
        "workloads:\n"
        "  - workload: {kind: synthetic, name: short, input_tokens: 16, output_tokens: 16}\n"
        "    levels: [{concurrency: 4, duration_s: 600}]\n"
        "search: {baseline: []}\n"
    )
    said = printed("--inventory", "v100", "--sweep", str(path))
    # Four launches of 10 min under load and some minutes to start and to return: two or three half hours.
    [nights] = re.findall(r"; fits (\d) nights of 23:30-00:00 Asia/Kolkata", said)

    assert int(nights) in (2, 3)
