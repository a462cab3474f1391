"""Writes the simulated node's commands: `vllm` and `nvidia-smi`, which carry its hardware in their environment.

python -m tokenpeak.sim.install DIR --gpu NAME --count N [--links L] [--driver D] [--version V] [--releases V,V]
                                [--start-s S] [--speed X]
python -m tokenpeak.sim.install --end      ends the demonstration servers that set-ups started here

It needs nothing but the standard library, so that `make clean` works without an environment.
"""

import argparse
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State
from tokenpeak.node.production.production import end_produced
from tokenpeak.paths import state_dir

SHIM = """#!/bin/sh
# Simulated by TokenPeak: plays vLLM and nvidia-smi, computes nothing.
{exports}
{quick}exec {python} -m {module} "$@"
"""

# Asked at each probe and launch; the engine itself takes half a second to start.
QUICK = """if [ "$*" = --version ] && [ -n "$TOKENPEAK_SIM_VERSION" ]; then echo "$TOKENPEAK_SIM_VERSION"; exit; fi
"""


def install(
    folder: Path, environment: Mapping[str, str], *, with_gpu: bool = True, releases: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Write the shims into `folder`, state beside them in `folder`/state; a variable that is set already wins.

    Without a GPU there is no nvidia-smi. Each of `releases` is a further engine, `vllm-RELEASE`. Returns the files
    written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    variables = {"TOKENPEAK_SIM_DIR": str(folder.resolve() / "state"), **environment}
    shims = {"vllm": ("tokenpeak.sim.engine", variables)}
    if with_gpu:
        shims["nvidia-smi"] = ("tokenpeak.sim.nvidia_smi", variables)
    for release in releases:
        shims[f"vllm-{release}"] = ("tokenpeak.sim.engine", {**variables, "TOKENPEAK_SIM_VERSION": release})
    written = []
    for name, (module, own) in shims.items():
        exports = "\n".join(f': "${{{key}:={_quoted(value)}}}"; export {key}' for key, value in own.items())
        path = folder / name
        path.write_text(
            SHIM.format(
                exports=exports,
                quick="" if module.endswith("smi") else QUICK,
                python=shlex.quote(sys.executable),
                module=module,
            )
        )
        path.chmod(0o755)
        written.append(path)
    return tuple(written)


def _quoted(value: str) -> str:
    """The value as it may stand inside `"${NAME:=…}"`."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")


def end(nodes: Collection[str] | None = None) -> None:
    """End each production that this user's state folder records of these nodes, by process, and print which.

    None: of all nodes. One that a trial has stays as it is.
    """
    for recorded in sorted((state_dir() / "nodes").glob("*/production.json")):
        node = recorded.parent.name
        if nodes is not None and node not in nodes:
            continue
        try:
            print(f"{node}: {end_produced(State(recorded.parent))}")
        except (ScriptError, OSError) as error:
            print(f"{node}: {error}")


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tokenpeak.sim.install", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--end", action="store_true", help="end the demonstration servers, and write nothing")
    parser.add_argument(
        "--gpu", default="NVIDIA L4", help="as in the hardware table; several, A,B,B, make mixed boards"
    )
    parser.add_argument("--count", type=int, default=1, help="how many; 0: a node without GPUs")
    parser.add_argument("--links", default=None, help="what nvidia-smi topo shows between two of them, such as NV4")
    parser.add_argument("--driver", default=None, help="the version of their driver, such as 535.183.01")
    parser.add_argument("--version", default=None, help="the vLLM release to play")
    parser.add_argument("--releases", default="", help="further releases, each as a command vllm-RELEASE; 0.24.0,0.8.5")
    parser.add_argument("--start-s", default=None, help="seconds until an engine answers")
    parser.add_argument("--speed", default=None, help="share of such a machine's usual speed, such as 0.92")
    options = parser.parse_args(argv)
    if options.end:
        end()
        return 0
    if options.folder is None:
        parser.error("the folder to write to is missing")
    environment = {"TOKENPEAK_SIM_GPU": options.gpu, "TOKENPEAK_SIM_GPU_COUNT": str(options.count)}
    for name, value in (("LINKS", options.links), ("DRIVER", options.driver), ("VERSION", options.version),
                        ("START_S", options.start_s), ("SPEED", options.speed)):  # fmt: skip
        if value:
            environment[f"TOKENPEAK_SIM_{name}"] = value
    releases = [word for word in options.releases.split(",") if word]
    for path in install(options.folder, environment, with_gpu=options.count > 0, releases=releases):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
