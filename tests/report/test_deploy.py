"""The winner's config in the forms that deployments take."""

import shlex

import pytest
import yaml

from archive_factory import config_of
from tokenpeak.plan.command import paste_command
from tokenpeak.records import Config
from tokenpeak.report.deploy import snippets


@pytest.fixture
def config() -> Config:
    """A config with a switch, numbers, an environment and words that need quoting."""
    found = config_of({"max_num_seqs": 64, "enforce_eager": True})
    return found.model_copy(update={"env": {"VLLM_LOGGING_LEVEL": "INFO $HOME 100%"}, "engine_version": "0.32.0"})


def texts(config: Config) -> dict[str, str]:
    """Each form by its title."""
    found = snippets(config, gpus=2, engine_version="0.32.0", launched=["vllm", "serve", "x"])
    return {snippet.title: snippet.text for snippet in found.snippets}


def test_all_forms_say_the_same_arguments(config: Config) -> None:
    """Kubernetes and Docker get the same arguments in the same order."""
    found = texts(config)
    container = yaml.safe_load(found["Kubernetes"])["containers"][0]
    docker = shlex.split(found["docker run"].replace("\\\n", ""))

    assert container["args"] == docker[docker.index("vllm/vllm-openai:v0.32.0") + 1 :]
    assert ["--max-num-seqs", "64"] == container["args"][container["args"].index("--max-num-seqs") :][:2]
    assert 2 == container["resources"]["limits"]["nvidia.com/gpu"]


def test_helm_values_are_yaml(config: Config) -> None:
    """The chart's values parse, and name image and model."""
    spec = yaml.safe_load(texts(config)["Helm values"])["servingEngineSpec"]["modelSpec"][0]

    assert ("vllm/vllm-openai", "v0.32.0") == (spec["repository"], spec["tag"])
    assert "--enforce-eager" in spec["vllmConfig"]["extraArgs"]


def test_the_unit_escapes_what_systemd_would_read(config: Config) -> None:
    """A percent sign in the unit stays one."""
    assert "100%%" in texts(config)["systemd"]


def test_an_unknown_release_gets_what_was_launched() -> None:
    """Where the flag table cannot write the command, the trial's own is given."""
    strange = config_of({"no_such_flag": 1}).model_copy(update={"engine_version": "0.32.0"})

    assert "vllm serve x" == texts(strange)["vllm serve"]


def test_the_command_is_folded_at_options(config: Config) -> None:
    """The command has a line per option, and without the folds is the one that the terminal prints."""
    found = texts(config)["vllm serve"]

    assert paste_command(config) == found.replace(" \\\n ", "")
    assert all(line.strip().startswith("--") for line in found.splitlines()[1:])
