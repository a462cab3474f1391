"""Definitions of servers in the shapes that public ones have: what vLLM gets, or why that is not known."""

from pathlib import Path
from typing import Any

import pytest

from tokenpeak.errors import InputError, PlanError
from tokenpeak.plan.baseline import parse_arguments
from tokenpeak.plan.definition import definitions

LIST = """
services:
  vllm:
    image: vllm/vllm-openai:v0.24.0
    command: ["--model", "acme/m", "--tensor-parallel-size", "2", "--port", "8000"]
  proxy:
    image: nginx
"""
LINE = """
services:
  llm:
    image: vllm/vllm-openai:latest
    environment: {HF_TOKEN: secret}
    command: >
      --model acme/m --max-model-len ${LENGTH:-8192}
      --gpu-memory-utilization 0.85 --enable-prefix-caching
"""
SHELL = """
services:
  llm:
    image: acme/own-vllm
    environment:
      - LENGTH=4096
    entrypoint: /bin/bash
    command:
      - -lc
      - |
        pip install -q something && \\
        export A=1
        exec vllm serve acme/m \\
          --max-model-len $$LENGTH --kv-cache-dtype fp8
"""
UNSET = """
services:
  llm:
    image: vllm/vllm-openai
    command: --model ${MODEL} --max-num-seqs ${SEQS:?how many}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      initContainers:
        - {name: fetch, image: vllm/vllm-openai, command: [hf, download, acme/m]}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.24.0
          command: [vllm, serve]
          args: [acme/m, -tp, "4", --max-num-seqs=$(SEQS), --trust-remote-code]
          env:
            - {name: SEQS, value: "64"}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
---
apiVersion: v1
kind: Service
metadata: {name: llm}
spec: {ports: [{port: 80}]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
    - name: server
      image: vllm/vllm-openai
      command: ["/bin/sh", "-c"]
      args: ["python3 -m vllm.entrypoints.openai.api_server --model acme/m --dtype half"]
"""
SET = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: vllm/vllm-openai
            command: [sh, -c, "bash /ray.sh leader; vllm serve acme/m -tp 8 -pp 2"]
"""
SERVING = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: kserve}
spec:
  predictor:
    model:
      image: vllm/vllm-openai
      args: [--model, acme/m, --max-model-len, "2048"]
"""
UNIT = """[Unit]
Description=vLLM

[Service]
User=vllm
Environment="VLLM_LOGGING_LEVEL=INFO" UTIL=0.9
ExecStart=/opt/vllm/bin/vllm serve acme/m \\
    --gpu-memory-utilization ${UTIL} \\
    -ep -dp 2 -O3
Restart=always
"""
FILE = """[Service]
ExecStart=/usr/local/bin/vllm serve --config /etc/vllm/serve.yaml
"""
SCRIPT = """#!/bin/bash
# One server; `don't` ask.
set -e
export MODEL=acme/m UTIL=0.9
EXTRA="--max-num-seqs 64 --enforce-eager"
echo "vLLM of $MODEL starts: vllm serve other" # not this one
CUDA_VISIBLE_DEVICES=0 exec vllm serve "$MODEL" \\
    --gpu-memory-utilization ${UTIL} $EXTRA > /var/log/vllm.log 2>&1 & # it's in the "background
wait
"""
DOCKER = """docker run --hostname vllm --env-file vllm.env --entrypoint vllm \\
    --gpus all -v ~/.cache/vllm:/root/.cache -p 8000:8000 --name vllm --ipc=host \\
    vllm/vllm-openai:latest serve acme/m -tp 2
"""
IMAGE = "sudo podman run --name vllm docker.io/vllm/vllm-openai:v0.24.0 --model acme/m -tp 2\n"
LINE_OF_TEXT = "vllm serve acme/m -ep -dp 4 -asc 4\n"

DEFINED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "list.yml": (LIST, "service vllm", {"tensor_parallel_size": 2}),
    "line.yaml": (
        LINE,
        "service llm",
        {"max_model_len": 8192, "gpu_memory_utilization": 0.85, "enable_prefix_caching": True},
    ),
    "shell.yml": (SHELL, "service llm", {"max_model_len": 4096, "kv_cache_dtype": "fp8"}),
    "deployment.yaml": (
        DEPLOYMENT,
        "Deployment llm, container vllm",
        {"tensor_parallel_size": 4, "max_num_seqs": 64, "trust_remote_code": True},
    ),
    "pod.yaml": (POD, "Pod one, container server", {"dtype": "half"}),
    "set.yaml": (
        SET,
        "LeaderWorkerSet big, container leader",
        {"tensor_parallel_size": 8, "pipeline_parallel_size": 2},
    ),
    "serving.yaml": (SERVING, "InferenceService kserve, container ?", {"max_model_len": 2048}),
    "start.sh": (
        SCRIPT,
        "script start.sh",
        {"gpu_memory_utilization": 0.9, "max_num_seqs": 64, "enforce_eager": True},
    ),
    "docker.sh": (DOCKER, "script docker.sh", {"tensor_parallel_size": 2}),
    "podman.sh": (IMAGE, "script podman.sh", {"tensor_parallel_size": 2}),
    "command.txt": (
        LINE_OF_TEXT,
        "script command.txt",
        {"enable_expert_parallel": True, "data_parallel_size": 4, "api_server_count": 4},
    ),
    "vllm.service": (
        UNIT,
        "unit vllm.service",
        {
            "gpu_memory_utilization": 0.9,
            "enable_expert_parallel": True,
            "data_parallel_size": 2,
            "optimization_level": "3",
        },
    ),
}


@pytest.mark.parametrize("name", DEFINED)
def test_flags_are_those_of_the_server(tmp_path: Path, name: str) -> None:
    """Whatever the file's kind, and whether a list, a line or a shell starts it."""
    text, place, flags = DEFINED[name]
    (tmp_path / name).write_text(text)
    found = definitions(tmp_path / name)
    assert found is not None

    assert [place] == [each.place for each in found]
    assert ("acme/m", flags) == parse_arguments(found[0].arguments, "0.24.0")


@pytest.mark.parametrize(
    ("name", "text", "reason"), [("unset.yml", UNSET, r"\$\{MODEL\}"), ("f.service", FILE, "serve.yaml")]
)
def test_what_is_not_in_the_file_is_no_baseline(tmp_path: Path, name: str, text: str, reason: str) -> None:
    """A variable that nobody set, and settings in another file."""
    (tmp_path / name).write_text(text)
    found = definitions(tmp_path / name)
    assert found

    with pytest.raises(PlanError, match=reason):
        parse_arguments(found[0].arguments, "0.24.0")


def test_variables_of_a_file_beside_are_filled_in(tmp_path: Path) -> None:
    """Compose reads `.env`."""
    (tmp_path / "unset.yml").write_text(UNSET)
    (tmp_path / ".env").write_text("# ours\nMODEL=acme/m\nexport SEQS='8'\n")
    found = definitions(tmp_path / "unset.yml")
    assert found

    assert ("acme/m", {"max_num_seqs": 8}) == parse_arguments(found[0].arguments, "0.24.0")


def test_another_file_is_none(tmp_path: Path) -> None:
    """A sweep is no definition, nor is damaged YAML; what no shell reads is refused in a sentence."""
    (tmp_path / "sweep.yml").write_text("axes: {max_num_seqs: [8]}\n")
    (tmp_path / "notes.md").write_text("It's about vllm\n")
    (tmp_path / "other.sh").write_text("echo it's 'fine\n")
    (tmp_path / "damaged.yml").write_text("services: [\n")

    assert definitions(tmp_path / "sweep.yml") is None
    assert definitions(tmp_path / "other.sh") is None
    with pytest.raises(InputError, match=r"notes\.md is read as a shell script"):
        definitions(tmp_path / "notes.md")
    assert definitions(tmp_path / "damaged.yml") is None


def test_a_variable_that_no_shell_could_read_is_one_word(tmp_path: Path) -> None:
    """A quote that nothing closes in a variable of flags is vLLM's to refuse, and ends nothing here."""
    (tmp_path / "start.sh").write_text('ARGS="--name \'x"\nvllm serve acme/m $ARGS\n')
    found = definitions(tmp_path / "start.sh")

    assert found is not None
    assert ("acme/m", "--name 'x") == found[0].arguments
