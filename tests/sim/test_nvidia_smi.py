"""The simulated nvidia-smi: the real one's command line over what simulated engines hold and draw."""

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from running_engine import StartEngine

from sim.forked import Forked, nvidia_smi
from tokenpeak.sim.install import install
from tokenpeak.sim.simulated_node import Holder, NodeState, process_started

MIB = 2**20


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    returncode: int
    stdout: str


def smi(folder: Path, *argv: str, gpu: str = "A100 80GB", count: int = 2) -> Ended:
    """Run nvidia-smi on the node whose state is in `folder`."""
    environment = {
        "TOKENPEAK_SIM_DIR": str(folder),
        "TOKENPEAK_SIM_GPU": gpu,
        "TOKENPEAK_SIM_GPU_COUNT": str(count),
    }
    with tempfile.TemporaryDirectory() as place:
        printed = Path(place) / "printed"
        status = Forked(nvidia_smi.main, argv, environment, printed).wait(60)
        return Ended(status, printed.read_text())


def ask(folder: Path, fields: str, **node: str | int) -> list[list[str]]:
    output = smi(folder, f"--query-gpu={fields}", "--format=csv,noheader,nounits", **node).stdout  # type: ignore[arg-type]
    return [line.split(", ") for line in output.splitlines()]


def holder(pid: int, started: str, **values: object) -> Holder:
    usual = {"name": "VLLM::EngineCore", "gpus": (0,), "vram_bytes": 10_000 * MIB, "written_at_unix_s": time.time()}
    return Holder(pid=pid, process_started=started, **{**usual, **values})  # type: ignore[arg-type]


def test_an_idle_node_lists_its_boards(tmp_path: Path) -> None:
    """Index, name, memory and capability are the hardware table's."""
    expected = [[str(index), "NVIDIA A100-SXM4-80GB", "81920", "8.0", "400.00"] for index in range(2)]

    assert expected == ask(tmp_path, "index,name,memory.total,compute_cap,power.limit")


def test_the_topology_shows_nvlink_between_boards(tmp_path: Path) -> None:
    """An A100 pair is linked by NVLink, an L4 pair by the host bridge."""
    assert "GPU0\t X \tNV12" in smi(tmp_path, "topo", "-m").stdout
    assert "GPU0\t X \tPHB" in smi(tmp_path, "topo", "-m", gpu="L4").stdout


def test_memory_of_a_process_that_is_gone_is_free(tmp_path: Path) -> None:
    """A killed engine's record is pruned; an id used again by another process does not keep it."""
    alive, started = 1, process_started(1) or ""
    state = NodeState(tmp_path)
    state.write(holder(alive, started))
    state.write(holder(2**22 + 1, "1"))
    used = [[line] for line in ("10004", "1")]

    assert used == ask(tmp_path, "memory.used")
    state.write(holder(alive, "another start"))
    assert [["1"], ["1"]] == ask(tmp_path, "memory.used")


def test_a_working_engine_shows_on_its_board_only(start_engine: StartEngine, tmp_path: Path) -> None:
    """Memory, power, utilization and the process itself, while it serves; nothing of it afterwards."""
    engine = start_engine("--max-model-len", "8192", dir=str(tmp_path), gpu_count="2").wait_ready()
    body = {"prompt": [1, 2, 3], "max_tokens": 8000, "ignore_eos": True}
    idle = ask(tmp_path, "memory.used,power.draw,utilization.gpu")
    with engine.client() as client, client.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
        lines = stream.iter_lines()
        for _ in range(60):
            next(lines)
        busy = ask(tmp_path, "memory.used,power.draw,utilization.gpu")
        apps = smi(tmp_path, "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader,nounits").stdout
    engine.process.terminate()
    engine.ended()

    assert 0.9 * 81_314 < int(idle[0][0]) < 81_314 and "1" == idle[1][0]
    assert float(busy[0][1]) > 1.5 * float(idle[0][1]) and int(busy[0][2]) > 30 and "0" == busy[1][2]
    assert apps.startswith(f"{engine.process.pid}, ") and 1 == len(apps.splitlines())
    assert [["1"], ["1"]] == ask(tmp_path, "memory.used")


@pytest.mark.parametrize("count", [0, 1])
def test_shims_carry_the_node(tmp_path: Path, count: int) -> None:
    """The installed commands need no environment; a node without GPUs has no nvidia-smi."""
    install(tmp_path, {"TOKENPEAK_SIM_GPU": "T4", "TOKENPEAK_SIM_GPU_COUNT": str(count)}, with_gpu=count > 0)
    version = subprocess.run([tmp_path / "vllm", "--version"], env={}, capture_output=True, text=True, check=True)

    assert "0.32.0\n" == version.stdout
    assert (count > 0) == (tmp_path / "nvidia-smi").exists()
    if count:
        query = [tmp_path / "nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        assert "Tesla T4\n" == subprocess.run(query, env={}, capture_output=True, text=True, check=True).stdout
