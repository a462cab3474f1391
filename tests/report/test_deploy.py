"""The winner's config in the forms that deployments take."""

import itertools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from archive_factory import config_of
from tokenpeak.records import Config, Container, EngineBuild, Gpu, NodeFacts
from tokenpeak.report.blocks.block import Sentence, Snippets, plain
from tokenpeak.report.blocks.deploy import snippets
from tokenpeak.report.blocks.serving_command import Accelerator
from tokenpeak.report.overview.summary import accelerator_of


@pytest.fixture
def config() -> Config:
    """A config with a switch, numbers, an environment and words that need quoting."""
    found = config_of({"max_num_seqs": 64, "enforce_eager": True})
    return found.model_copy(update={"env": {"VLLM_LOGGING_LEVEL": "INFO $HOME 100%"}, "engine_version": "0.32.0"})


def texts(
    config: Config, gpus: int = 2, launched: Sequence[str] = ("vllm", "serve", "x"), **more: Any
) -> dict[str, str]:
    """Each form by its title, of an engine on so many GPUs."""
    found = snippets(config, gpus=gpus, launched=launched, **{"engine_version": "0.32.0"} | more)
    assert isinstance(found, Snippets)
    return {snippet.title: snippet.text for snippet in found.snippets}


def pod(found: dict[str, str]) -> dict[str, Any]:
    """The pod of the Deployment."""
    spec = yaml.safe_load(found["Kubernetes"])["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_all_forms_say_the_same_arguments(config: Config) -> None:
    """Kubernetes and Docker get the same arguments in the same order."""
    found = texts(config)
    container = pod(found)["containers"][0]
    service = yaml.safe_load(found["Compose"])["services"]["vllm"]
    docker = shlex.split(found["docker run"].replace("\\\n", ""))

    assert ["serve", *container["args"]] == docker[docker.index("vllm/vllm-openai:v0.32.0") + 1 :]
    assert container["args"] == service["command"]
    assert container["command"] == service["entrypoint"] == [docker[docker.index("--entrypoint") + 1], "serve"]
    assert ["--max-num-seqs", "64"] == container["args"][container["args"].index("--max-num-seqs") :][:2]
    assert 2 == container["resources"]["limits"]["nvidia.com/gpu"]


@pytest.mark.parametrize(("gpus", "folder"), [(1, "meta-llama/Llama-3.1-8B-Instruct"), (2, "/srv/models/tiny $(x)")])
def test_kubernetes_takes_the_manifest(config: Config, gpus: int, folder: str) -> None:
    """The Deployment is one by Kubernetes' own schema, which refuses a misspelt property."""
    schema = json.loads(Path(__file__).with_name("deployment-1.32.0.json").read_text())
    manifest = yaml.safe_load(texts(config, gpus, ["vllm", "serve", folder])["Kubernetes"])
    validator = Draft7Validator(schema)

    assert [] == list(validator.iter_errors(manifest))
    manifest["spec"]["template"]["spec"]["containers"][0]["argz"] = []
    assert [] != list(validator.iter_errors(manifest))


def test_several_gpus_share_memory(config: Config) -> None:
    """Where an engine takes several GPUs, each container gets more of /dev/shm than the little that it would have."""
    one, two = texts(config, 1, ()), texts(config, 2, ())

    assert not any("shm" in text for text in one.values())
    assert "--shm-size 16g" in two["docker run"]
    assert "16gb" == yaml.safe_load(two["Compose"])["services"]["vllm"]["shm_size"]
    (volume,) = pod(two)["volumes"]
    (mount,) = pod(two)["containers"][0]["volumeMounts"]
    assert ("/dev/shm", "Memory") == (mount["mountPath"], volume["emptyDir"]["medium"])


def test_the_program_that_ran_is_named(config: Config) -> None:
    """A program with a path of its own is started again, with its words; one in a temporary folder by its name."""
    own = texts(config, 1, ["/opt/vllm-0.32/bin/python", "-m", "vllm", "serve", "m", "--host", "127.0.0.1"])
    temporary = texts(config, 1, ["/tmp/v/bin/vllm", "serve", "m", "--host", "127.0.0.1"])

    assert f"/opt/vllm-0.32/bin/python -m vllm serve {config.model.name}" in own["vllm serve"]
    assert f"ExecStart=/opt/vllm-0.32/bin/python -m vllm serve {config.model.name}" in own["systemd"]
    assert f" vllm serve {config.model.name}" in temporary["vllm serve"]
    assert "ExecStart=/usr/local/bin/vllm serve " in temporary["systemd"]


MODULE = ("/opt/old/bin/python", "-m", "vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize("flags", [{"max_num_seqs": 64}, {"no_such_flag": 1}])
def test_module_of_older_images_gets_its_model(flags: dict[str, object]) -> None:
    """What ran by that module has its model behind --model, on the machine and in the image; the official one has not.

    Also where the flag table does not know the release.
    """
    own = config_of(flags).model_copy(update={"engine_version": "0.8.5"})
    launched = [*MODULE, "--model", own.model.name, "--host", "127.0.0.1", "--port", "8099"]
    program, image = (
        texts(own, 1, launched, engine_version="0.8.5", build=build)
        for build in (None, EngineBuild(name="box", image=IMAGE, container=Container()))
    )
    named = ["--model", own.model.name]

    assert f"{' '.join(MODULE)} --model {own.model.name}" in words_of(program["vllm serve"])
    assert f"ExecStart={' '.join(MODULE)} --model {own.model.name} --host 0.0.0.0" in program["systemd"]
    assert own.model.name == pod(program)["containers"][0]["args"][0]
    assert (list(MODULE), named) == (pod(image)["containers"][0]["command"], pod(image)["containers"][0]["args"][:2])
    arguments = yaml.safe_load(image["Helm values"])["servingEngineSpec"]["modelSpec"][0]["vllmConfig"]["extraArgs"]
    assert "--model" not in arguments and "--host" == arguments[0]


def words_of(text: str) -> str:
    """A folded command on one line."""
    return " ".join(text.replace("\\\n", " ").split())


OWN = ["/opt/own/vllm", "serve", "/models/llama", "--host", "127.0.0.1"]
IMAGE = "registry.example/own/vllm:2026-11"


def of_image(
    config: Config, container: Container, accelerator: Accelerator = "nvidia", image: str = IMAGE
) -> dict[str, str]:
    """Each form of an engine whose image was run so, on one board."""
    build = EngineBuild(name="box", image=image, container=container)
    return texts(config, 1, OWN, build=build, accelerator=accelerator)


def words(text: str) -> list[str]:
    """The words of a shell's or a unit's command line."""
    return shlex.split(text.replace("\\\n", ""))


MADE = Container(
    mounts=("/srv/models:/models:ro", "/srv/cache:/root/.cache/vllm"),
    devices=("/dev/kfd", "/dev/dri/renderD128"),
    user="1000:44",
    shm_size="20g",
    limits={"memory": "200g", "pids": "4096"},
    args=("--ulimit=memlock=-1",),
)


def test_forms_are_made_as_the_containers_were(config: Config) -> None:
    """Mounts, boards, user, shared memory and limits are those that were measured; a mounted model is not added."""
    shown = of_image(config, MADE, "amd")
    service = yaml.safe_load(shown["Compose"])["services"]["vllm"]
    spec = pod(shown)

    for form in ("docker run", "podman run", "systemd"):
        said = words(shown[form])
        for option, value in (
            ("-v", "/srv/models:/models:ro"),
            ("-v", "/srv/cache:/root/.cache/vllm"),
            ("--device", "/dev/kfd"),
            ("--user", "1000:44"),
            ("--shm-size", "20g"),
            ("--memory", "200g"),
            ("--pids-limit", "4096"),
        ):
            assert (option, value) in set(itertools.pairwise(said)), form
        assert "--ulimit=memlock=-1" in said
        assert not any("--gpus" in word or "huggingface" in word or "/models/llama:" in word for word in said)
    assert ["/srv/models:/models:ro", "/srv/cache:/root/.cache/vllm"] == service["volumes"]
    assert ("1000:44", "20g", "200g") == (service["user"], service["shm_size"], service["mem_limit"])
    assert ["/dev/kfd:/dev/kfd", "/dev/dri/renderD128:/dev/dri/renderD128"] == service["devices"]
    assert ["/srv/models", "/srv/cache"] == [volume["hostPath"]["path"] for volume in spec["volumes"]]
    assert {"amd.com/gpu": 1} == spec["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    ("image", "container", "whole"),
    [
        ("vllm/vllm-openai:v0.32.0", Container(), "docker.io/vllm/vllm-openai:v0.32.0"),
        ("own:1", Container(), "docker.io/library/own:1"),
        ("registry.example/own:1", Container(), "registry.example/own:1"),
        ("localhost/own:1", Container(), "localhost/own:1"),
        ("own:1", Container(runtime="podman"), "own:1"),
    ],
)
def test_podman_gets_the_whole_name(config: Config, image: str, container: Container, whole: str) -> None:
    """Podman may search no registry for a short name; Docker means its own. What Podman ran is named as it was."""
    shown = of_image(config, container, image=image)

    assert f"{whole} serve" in shown["podman run"]
    assert f" {image} serve" in shown["docker run"].replace("\n ", "")
    assert "--device nvidia.com/gpu=0" in shown["podman run"] and "--gpus 1" in shown["docker run"]


def test_other_accelerators_get_no_nvidia_container(config: Config) -> None:
    """A node of processors or of another vendor is not offered what asks for NVIDIA's GPUs."""
    cpu = NodeFacts(node="a", source="probed", cpu="EPYC", cpu_cores=2)
    amd, nvidia = (
        NodeFacts(node="b", source="probed", gpus=(Gpu(index=0, name=name),)) for name in ("AMD Instinct MI210", "L4")
    )
    found = texts(config, 1, (), accelerator="none")

    assert ["none", "amd", "nvidia"] == [accelerator_of([node]) for node in (cpu, amd, nvidia)]
    assert ["vllm serve", "systemd"] == list(found)


def test_an_unknown_release_gets_what_was_launched() -> None:
    """Where the flag table cannot write the command, the trial's own is given."""
    strange = config_of({"no_such_flag": 1}).model_copy(update={"engine_version": "0.32.0"})
    launched = ["/opt/v/vllm", "serve", strange.model.name, "--host", "127.0.0.9", "--port", "8099", "--no-such-flag=1"]
    shown = texts(strange, 1, launched)

    assert shlex.join(launched) == shown["vllm serve"].replace(" \\\n ", "")
    assert "serve meta-llama/Llama-3.1-8B-Instruct --host 0.0.0.0 --port 8000 --no-such-flag=1" in shown["systemd"]


def test_a_model_in_a_folder_is_served_from_there(config: Config) -> None:
    """What the node called by a name and launched from a folder is pasted with the folder, and keeps its name."""
    launched = ["/opt/vllm/bin/vllm", "serve", "/srv/models/tiny", "--host", "127.0.0.1"]
    found = texts(config, 1, launched)
    named = f"--served-model-name {config.model.served_name}"

    assert all("/srv/models/tiny" in text for text in found.values())
    assert "vllm serve /srv/models/tiny " in found["vllm serve"]
    assert named in found["vllm serve"]
    assert "-v /srv/models/tiny:/srv/models/tiny:ro" in found["docker run"]


LAUNCHED = ["/tmp/v/bin/vllm", "serve", "/tmp/model", "--port", "8099", "--load-format", "dummy", "--no-such-flag", "1"]


@pytest.mark.parametrize("flags", [{"max_num_seqs": 64}, {"no_such_flag": 1}])
def test_what_is_pasted_serves_real_weights_from_a_real_name(flags: dict[str, object]) -> None:
    """A config measured with random weights from a temporary folder is served by its model's name, with its weights."""
    measured = config_of({**flags, "load_format": "dummy"}).model_copy(update={"engine_version": "0.32.0"})
    found = snippets(measured, gpus=1, engine_version="0.32.0", launched=LAUNCHED)
    assert isinstance(found, Snippets)

    for snippet in found.snippets:
        assert "dummy" not in snippet.text and "/tmp/" not in snippet.text
        assert measured.model.name in snippet.text
    assert "Measured with random weights; this loads the weights of" in found.snippets[0].note


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm", "sglang"])
def test_another_engine_has_no_command_of_vllm(config: Config, engine: str) -> None:
    """Where an archive names another engine in place of a version, a sentence says that there is no command."""
    imported = config.model_copy(update={"engine_version": engine})
    found = snippets(imported, gpus=1, launched=(), engine_version=None)

    assert isinstance(found, Sentence)
    assert f"it ran on {engine}" in plain(found.parts)


def test_another_server_has_its_own_command(config: Config) -> None:
    """What a trial launched is pasted at the address of a deployment, with the config's environment."""
    measured = config.model_copy(update={"engine_version": "llama.cpp", "flags": {}, "env": {"GGML_CUDA": "1"}})
    argv = ["/opt/llama-server", "--host", "127.0.0.1", "--port", "8099", "-m", "/models/tiny.Q4_0.gguf"]
    found = snippets(measured, gpus=1, launched=argv, engine_version=None)

    assert isinstance(found, Snippets)
    (only,) = found.snippets
    assert "llama.cpp" == only.title
    assert "GGML_CUDA=1 /opt/llama-server --host 0.0.0.0 --port 8000 -m /models/tiny.Q4_0.gguf" == only.text
