"""What stands before a line of a log is taken off, and the indentation behind it stays."""

import pytest

from tokenpeak.vllm.log_lines import plain_line
from tokenpeak.vllm.startup_log import classify_failure

PREFIXES = [
    "(APIServer pid=1) ",
    "(EngineCore_DP0 pid=68) ERROR 01-02 03:05:00 [core.py:936] ",
    "(APIServer pid=1) (EngineCore_DP0 pid=68) ERROR 01-02 03:05:00 [core.py:936] ",
    "(Worker_TP0 pid=13) ERROR 01-02 03:05:00 [v1/executor/multiproc_executor.py:597] ",
    "(VllmWorkerProcess pid=71) ERROR 07-19 07:31:57 multiproc_worker_utils.py:226] ",
    "(RayWorkerWrapper pid=36, ip=10.0.0.9) ",
    "[rank0]: ",
    "[rank0]:[E1128 09:00:00.123456789 ProcessGroupNCCL.cpp:616] ",
    "\x1b[1;36m(EngineCore_DP0 pid=12)\x1b[0;0m ERROR 01-02 03:05:00 [core.py:842] ",
    "[1;36m(EngineCore_DP0 pid=12)[0;0m ",
    "Nov 28 09:00:00 gpu-1 vllm[123]: ",
    "Nov  8 09:00:00 gpu-1 vllm[123]: (APIServer pid=123) ",
    "2026-11-28T09:00:00+0100 gpu-1 docker-vllm[123]: ",
    "2026-11-28T09:00:00.123456789Z ",
    "2026-11-28T09:00:00.123456789Z stderr F (EngineCore pid=9) ",
    "[2026-11-28T09:00:00Z] ",
    "vllm-1  | (EngineCore pid=9) ",
    "[pod/vllm-0/engine] ",
    "2026-11-28 09:00:00 | ERROR | stderr | ",
    "(Worker pid=22) [Stage-0] ERROR 03-13 08:22:28 [multiproc_executor.py:800] ",
]
VALIDATION = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig
  Value error, max_num_partial_prefills (4) must be less than or equal to max_num_seqs (2). [type=value_error, input_value=1]
    For further information visit https://errors.pydantic.dev/2.12/v/value_error"""  # noqa: E501
NOISE = """\
ERROR 01-02 03:04:05 [config.py:130] Error retrieving safetensors: Repo id must be in the form 'repo_name' or \
'namespace/repo_name': '/srv/models/acme-8b'. Use `repo_type` argument if needed., retrying 1 of 2
ERROR 01-02 03:04:07 config.py:100] Error retrieving file list: Repo id must be in the form 'repo_name' or \
'namespace/repo_name': '/srv/models/acme-8b'. Use `repo_type` argument if needed.
Arguments: (HFValidationError("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/acme'."),)
"""


@pytest.mark.parametrize("prefix", PREFIXES)
def test_indentation_behind_a_prefix_stays(prefix: str) -> None:
    """Before a line that begins at its margin, and before the reason that stands indented below it."""
    log = "\n".join(prefix + line for line in VALIDATION.splitlines())
    found = classify_failure(log, phase="engine_start", exit_status=1, timed_out=False)

    assert VALIDATION.splitlines() == [plain_line(line) for line in log.splitlines()]
    assert "bad_flag_value" == found.cause
    assert "max_num_partial_prefills (4) must be less than or equal to max_num_seqs (2)" in found.message


@pytest.mark.parametrize(
    "line",
    [
        "INFO 01-02 03:04:05 [core.py:1] (a) b",
        "AssertionError: [1, 2]",
        "  | 4 | x",
        "Traceback (most recent call last):",
    ],
)
def test_line_without_a_prefix_stays(line: str) -> None:
    """Brackets, bars and levels that are no prefix are the line's own."""
    assert plain_line(line).lstrip(" |") == line.lstrip(" |")


def test_refusal_of_a_local_path_is_no_cause() -> None:
    """The engine logs it of each local path before the cause, or without any."""
    crashed = NOISE + "(EngineCore_0 pid=12) ERROR 01-02 03:05:00 [core.py:700] KeyError: 'layers.0.w2_scale'\n"

    assert "crashed" == classify_failure(crashed, phase="engine_start", exit_status=1, timed_out=False).cause
    assert "unknown" == classify_failure(NOISE, phase="engine_start", exit_status=1, timed_out=False).cause
