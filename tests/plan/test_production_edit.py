"""Edit of production's command: the config's flags are set, other tuning flags go, and what clients see stays."""

from typing import Any

from tokenpeak.plan.serving import Described, Edit, Program, production_edit
from tokenpeak.records import Config, ModelName

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROGRAM = ("/opt/vllm/bin/vllm", "serve")


def production(*words: str, **changes: Any) -> Described:
    return Described(
        **{
            "place": "systemd unit vllm.service",
            "words": (*PROGRAM, *words),
            "program": 2,
            "env": {},
            "image": None,
            "text": "",
            "served_name": "llama",
            **changes,
        }
    )


def config(model: str = MODEL, **flags: Any) -> Config:
    env = flags.pop("env", {})
    return Config(config_id="0123", name="c", model=ModelName(name=model, served_name=model), flags=flags, env=env)


def edit(described: Described, wanted: Config, **options: Any) -> Edit:
    launched = (*PROGRAM, wanted.model.name, "--host", "h", "--port", "8099")
    return production_edit(described, wanted, launched, **{"base_model": MODEL, "version": "0.32.0", **options})


def test_what_stays_goes_and_comes() -> None:
    """Address, names, key and parser stay as they are; the config's flags are set; other tuning flags go."""
    described = production(
        *("/models/llama", "--host", "0.0.0.0", "--port=8000", "--served-model-name", "llama", "llama-3"),
        *("--max-num-seqs", "64", "--enforce-eager", "--api-key", "[secret]", "-tp", "2", "--kv-cache-dtype", "fp8"),
        *("--tool-call-parser", "llama3_json", "--enable-auto-tool-choice", "--no-enable-prefix-caching"),
    )
    found = edit(described, config(max_num_seqs=256, tensor_parallel_size=2, enable_prefix_caching=True))

    assert (
        *PROGRAM,
        *("/models/llama", "--host", "0.0.0.0", "--port=8000", "--served-model-name", "llama", "llama-3"),
        *("--max-num-seqs", "256", "--api-key", "[secret]", "--tensor-parallel-size", "2"),
        *("--tool-call-parser", "llama3_json", "--enable-auto-tool-choice", "--enable-prefix-caching"),
    ) == found.shown_words(described)
    kept = [word for word in found.words if isinstance(word, int)]
    assert described.words.index("[secret]") in kept, "a secret is named by its place and never sent"
    assert "[secret]" not in found.words
    assert found.changes(described)


def test_quantized_checkpoint_keeps_the_name_that_clients_ask_for() -> None:
    """Another model is served by the name that production's had."""
    described = production(MODEL, "--port", "8000", "--revision", "abc")
    found = edit(described, config(model="org/Llama-3.1-8B-FP8"))

    assert (*PROGRAM, "org/Llama-3.1-8B-FP8", "--port", "8000", "--served-model-name", "llama") == found.shown_words(
        described
    )


def test_environment() -> None:
    """Variables of the config are set; one that other configs set and this one does not goes; others stay."""
    described = production(MODEL, env={"VLLM_USE_DEEP_GEMM": "1", "HF_HOME": "/x", "VLLM_LOGGING_LEVEL": "INFO"})
    wanted = config(env={"VLLM_MLA_DISABLE": "1"})
    found = edit(described, wanted, tuned_env=["VLLM_USE_DEEP_GEMM", "VLLM_MLA_DISABLE"])

    assert {"VLLM_MLA_DISABLE": "1", "VLLM_USE_DEEP_GEMM": None} == {**found.env}


def test_program_of_another_build() -> None:
    """Where another version was measured, the program is that build's, or the image is."""
    described = production(MODEL, "--port", "8000")
    command = edit(described, config(), program=Program(words=("/opt/vllm-0.33/bin/vllm", "serve")))
    image = edit(production(MODEL, image="vllm:1"), config(), program=Program(image="vllm:2"))

    assert ("/opt/vllm-0.33/bin/vllm", "serve", MODEL, "--port", "8000") == command.shown_words(described)
    assert "vllm:2" == image.image
