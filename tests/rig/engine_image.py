"""A root file system with the simulated engine and nothing else: an interpreter, its libraries, the package."""

import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import httptools
import yaml
import zstandard

import tokenpeak
from tokenpeak.sim.install import install

PACKAGES = "/srv/packages"
LEFT_OUT = {"site-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "__pycache__"}


def engine_tar(folder: Path, *, gpus: int, release: str) -> Path:
    """A tar file to import as an image: /usr/local/bin/vllm plays this release on so many GPUs."""
    (staged := folder / "staged").mkdir()
    environment = {
        "PYTHONPATH": PACKAGES,
        "TOKENPEAK_SIM_DIR": "/var/lib/simulated",
        "TOKENPEAK_SIM_GPU": "NVIDIA L4",
        "TOKENPEAK_SIM_GPU_COUNT": str(gpus),
        "TOKENPEAK_SIM_VERSION": release,
        "TOKENPEAK_SIM_START_S": "0.3",
    }
    install(staged, environment)
    library = Path(sysconfig.get_path("stdlib"))
    binary = Path(sys.executable).resolve()
    packages = [
        Path(str(tokenpeak.__file__)).parent,
        *(Path(str(module.__file__)).parent for module in (httptools, yaml, zstandard)),
    ]
    shared = [
        binary,
        Path("/bin/sh"),
        *(library / "lib-dynload").glob("*.so"),
        *(so for each in packages for so in each.rglob("*.so")),
    ]
    made = folder / "engine.tar"
    with tarfile.open(made, "w") as tar:
        for name in ("tmp", "var/lib/simulated", "root", "proc", "dev", "sys", "etc"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(library, str(library), filter=_needed)
        for each in packages:
            tar.add(each, f"{PACKAGES}/{each.name}", filter=_needed)
        tar.add(binary, str(binary))
        if Path(sys.executable) != binary:
            link = tarfile.TarInfo(sys.executable)
            link.type, link.linkname = tarfile.SYMTYPE, str(binary)
            tar.addfile(link)
        for path in sorted({"/bin/sh", *_libraries(shared)}):
            content = Path(path).resolve().read_bytes()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        tar.add(staged / "vllm", "usr/local/bin/vllm")
    shutil.rmtree(staged)
    return made


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(entry.name).name
    return None if name in LEFT_OUT or name.startswith("config-") else entry


def _libraries(binaries: list[Path]) -> set[str]:
    """The shared libraries that these need, by the paths at which they are looked for."""
    said = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    return {path for path in re.findall(r"(?:=> |^\s+)(/\S+)", said, re.MULTILINE) if Path(path).exists()}
