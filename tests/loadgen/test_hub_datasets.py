"""Datasets of the hub, read by the real library, which is installed beside the tests and works without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

CODE = """
import sys
from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.datasets import read_samples
from tokenpeak.spec.workload import DatasetWorkload

for hub in sys.argv[1:]:
    try:
        for sample in read_samples(DatasetWorkload(name="x", hub=hub.split("+"), match="(?i)java")):
            print(sample.prompt, sample.output_tokens)
    except WorkloadError as error:
        print(error)
"""
CHATS = """{"conversations": [{"from": "human", "value": "Spring in Java"}, {"from": "gpt", "value": "Yes, it is"}]}
{"conversations": [{"from": "human", "value": "COBOL"}, {"from": "gpt", "value": "No"}]}
"""
PROMPTS = """{"prompt": "javascript tips"}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extra's library, in a folder of its own."""
    folder = tmp_path_factory.mktemp("datasets")
    install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", folder, "datasets>=4"]
    subprocess.run(install, check=True, timeout=300)
    return folder


def test_hub_datasets_are_read_merged_and_matched(library: Path, tmp_path: Path) -> None:
    """Splits in the form of the hub, ShareGPT's and plain prompts; one that is not in the cache is a sentence."""
    for name, rows in (("chats", CHATS), ("prompts", PROMPTS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text(rows)
    both = f"{tmp_path / 'chats'}+{tmp_path / 'prompts'}"
    environment = {**os.environ, "PYTHONPATH": str(library), "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, both, "acme/none"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    first, second, third = done.stdout.splitlines()

    assert ["Spring in Java 3", "javascript tips None"] == [first, second]
    assert third.startswith("The dataset acme/none, split 'train', cannot be read: ")
