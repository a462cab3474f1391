"""The simulated node's `nvidia-smi`: the real one's command line, over the state that simulated engines write.

    --query-gpu=FIELDS | --query-compute-apps=FIELDS  --format=csv[,noheader][,nounits] [-i GPU] [-l S | -lms MS]
    -L      topo -m      (nothing: the table)

Fields are in boards.py; messages are those of nvidia-smi 570.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tokenpeak.sim.boards import APP_FIELDS, CUDA, GPU_FIELDS, MIB, Looks, SimulatedGpu, boards
from tokenpeak.sim.device import devices
from tokenpeak.sim.state import NodeState


class SmiCommandError(Exception):
    """The command line is not understood; `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def chosen(found: list[SimulatedGpu], wanted: str | None) -> list[SimulatedGpu]:
    """Those that `-i` names: by index, UUID or bus id, several with commas between; all without."""
    if wanted is None:
        return found
    named: list[SimulatedGpu] = []
    for word in wanted.split(","):
        matching = [gpu for gpu in found if word in (str(gpu.index), gpu.uuid, gpu.bus_id)]
        if not matching:
            raise SmiCommandError("No devices were found", 6)
        named += matching
    return named


def _csv(names: list[str], rows: list[list[tuple[str, str]]], options: set[str]) -> list[str]:
    lines = []
    if "noheader" not in options:
        units = [next((row[column][1] for row in rows), "") for column in range(len(names))]
        heads = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
        lines.append(", ".join(heads))
    bare = "nounits" in options
    lines += [", ".join(value if bare or not unit else f"{value} {unit}" for value, unit in row) for row in rows]
    return lines


def _fields(asked: str, known: Mapping[str, object]) -> list[str]:
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise SmiCommandError(f'Field "{name}" is not a valid field to query.\n', 2)
    return names


def _query_gpu(asked: str, options: set[str], shown: list[SimulatedGpu]) -> list[str]:
    names = _fields(asked, GPU_FIELDS)
    return _csv(names, [[GPU_FIELDS[name](gpu) for name in names] for gpu in shown], options)


def _query_apps(asked: str, options: set[str], shown: list[SimulatedGpu]) -> list[str]:
    names = _fields(asked, APP_FIELDS)
    rows = [[APP_FIELDS[name](gpu, holder) for name in names] for gpu in shown for holder in gpu.holders]
    return _csv(names, rows, options)


def _list(shown: list[SimulatedGpu]) -> list[str]:
    return [f"GPU {gpu.index}: {gpu.devices.gpu.name} (UUID: {gpu.uuid})" for gpu in shown]


def _topology(shown: list[SimulatedGpu]) -> list[str]:
    """`topo -m`: what is between two boards, the same for each pair."""
    links = shown[0].devices.links
    columns = [f"GPU{board.index}" for board in shown]
    lines = ["\t" + "\t".join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    for row in shown:
        cells = [" X " if row is column else links for column in shown]
        lines.append("\t".join([f"GPU{row.index}", *cells, cores, "0", "N/A"]))
    return [
        *lines,
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
        "  PIX  = Connection traversing at most a single PCIe bridge",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]


def _table(shown: list[SimulatedGpu]) -> list[str]:
    rule = "+-----------------------------------------+------------------------+----------------------+"
    driver = shown[0].devices.driver
    lines = [
        datetime.now().astimezone().strftime("%a %b %e %H:%M:%S %Y"),
        rule,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {CUDA:<8}        |",
        rule,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        rule.replace("-", "="),
    ]
    for gpu in shown:
        memory = f"{gpu.used_mib}MiB / {gpu.total_mib}MiB"
        power = f"{gpu.power_w:.0f}W / {gpu.devices.power_limit_w:.0f}W"
        state = f"{'P0' if gpu.holders or gpu.hbm else 'P8'}"
        lines += [
            f"| {gpu.index:>3}  {gpu.devices.gpu.name[:22]:<22}        On  | {gpu.bus_id:>15} Off |"
            f" {0 if gpu.hbm else 'Off':>20} |",
            f"| N/A  {gpu.temperature_c:>3}C    {state}    {power:>21} | {memory:>22} |"
            f" {100 * gpu.utilization:>6.0f}%      Default |",
            rule,
        ]
    lines += ["", "| Processes:", "|  GPU   PID   Type   Process name            GPU Memory Usage |"]
    for gpu in shown:
        for holder in gpu.holders:
            memory = f"{holder.vram_bytes // MIB}MiB"
            lines.append(f"|  {gpu.index:>3} {holder.pid:>7}    C   {holder.name:<28} {memory:>12} |")
    return lines


@dataclass(kw_only=True)
class _Command:
    show: Callable[[list[SimulatedGpu]], list[str]] = _table
    wanted: str | None = None
    every_s: float | None = None


def _parse(argv: list[str]) -> _Command:
    command, options, query = _Command(), set[str](), None
    words = iter(argv)

    def value(word: str) -> str:
        _, equals, after = word.partition("=")
        found = after if equals else next(words, None)
        if found is None:
            raise SmiCommandError(f"Option '{word}' requires a value. See 'nvidia-smi -h'.", 2)
        return found

    for word in words:
        name = word.partition("=")[0]
        if name == "--query-gpu":
            query = (_query_gpu, value(word))
        elif name == "--query-compute-apps":
            query = (_query_apps, value(word))
        elif name == "--format":
            options = {option.strip() for option in value(word).split(",")}
        elif name in ("-i", "--id"):
            command.wanted = value(word)
        elif name in ("-l", "--loop"):
            command.every_s = float(value(word))
        elif name in ("-lms", "--loop-ms"):
            command.every_s = float(value(word)) / 1000
        elif name in ("-L", "--list-gpus"):
            command.show = _list
        elif name == "topo":
            if next(words, None) not in ("-m", "--matrix"):
                raise SmiCommandError("topo: only -m is simulated.", 2)
            command.show = _topology
        else:
            raise SmiCommandError(
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{word}", 2
            )
    if query is not None:
        ask, asked = query
        if "csv" not in options:
            raise SmiCommandError('"--format=" switch is missing. Format "csv" is required.', 2)
        command.show = lambda shown: ask(asked, options, shown)
    return command


def main(argv: list[str] | None = None) -> int:
    """The command line; the exit status is nvidia-smi's."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    node = devices(dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    folder = os.environ.get("TOKENPEAK_SIM_DIR")
    try:
        command = _parse(sys.argv[1:] if argv is None else argv)
        if node.is_cpu or folder is None:
            raise SmiCommandError("No devices were found", 6)
        state = NodeState(Path(folder))
        due, looks = time.monotonic(), Looks()
        while True:
            sys.stdout.write("\n".join(command.show(chosen(boards(node, state, looks), command.wanted))) + "\n")
            sys.stdout.flush()
            if command.every_s is None:
                return 0
            due += command.every_s
            time.sleep(max(0.0, due - time.monotonic()))
    except SmiCommandError as refused:
        print(refused)
        return refused.status
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
