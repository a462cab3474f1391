"""Settings in a file are those of the command line that the engine makes of it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tokenpeak.node.probe.serve_file import read_settings, with_settings

TEXT = """# production
model: acme/m
port: 8000
max-model-len: 8192   # tokens
gpu_memory_utilization: "0.85"
enable-prefix-caching: true
enforce-eager: false
middleware:
  - one
  - 'two'
compilation-config: '{"mode": 3}'
"""


def words_of(text: str) -> list[str]:
    """The words of a flat mapping by a YAML library, as 0.32.0 utils/argparse_utils.py makes them."""
    words: list[str] = []
    for key, value in yaml.safe_load(text).items():
        flag = "--" + key.replace("_", "-")
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return words


@pytest.mark.parametrize(
    "text", [TEXT, "tensor_parallel_size: 4\n", "---\nmodel: 'a # b'\nport: 1\n", "lora-modules: [a, b]\n"]
)
def test_words_are_the_files(text: str) -> None:
    """As a YAML library reads them."""
    assert words_of(text) == read_settings(text)


@pytest.mark.parametrize("text", ["a:\n  b: 1\n", "a: &x 1\nb: *x\n", "a: |\n  text\n", "- a\n- b\n", "nonsense\n"])
def test_more_than_a_flat_mapping_is_not_read(text: str) -> None:
    """None, rather than a guess."""
    assert read_settings(text) is None


def test_file_of_a_process_is_found_by_its_own_folders(tmp_path: Path) -> None:
    """A relative name counts from the process's folder; its own words come last, as they count."""
    (tmp_path / "serve.yaml").write_text("max-model-len: 8192\n")
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        relative = with_settings(["acme/m", "--config", "serve.yaml", "-tp", "2"], process.pid)
        whole = with_settings(["acme/m", f"--config={tmp_path}/serve.yaml"], process.pid)
        missing = with_settings(["acme/m", "--config", "no.yaml"], process.pid)
        assert process.stdin is not None
        process.stdin.close()

    assert ["--max-model-len", "8192", "acme/m", "-tp", "2"] == relative
    assert ["--max-model-len", "8192", "acme/m"] == whole
    assert ["acme/m", "--config", "no.yaml"] == missing
