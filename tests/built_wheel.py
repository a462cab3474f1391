"""The wheel as a user has it: built from the checkout as it is, unpacked beside a `tokenpeak` that runs it."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tokenpeak import paths

COMMAND = """#!{python}
import sys

sys.argv[0] = "tokenpeak"
from tokenpeak.cli import main

main()
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder."""
    hatchling = str(Path(sys.executable).with_name("hatchling"))
    argv = [hatchling, "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(argv, cwd=paths.ROOT, capture_output=True, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def unpack_wheel(wheel: Path, folder: Path) -> Path:
    """Unpack it into `folder`/site, with `folder`/bin/tokenpeak; both belong into PYTHONPATH and PATH. The folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "bin").mkdir()
    command = folder / "bin" / "tokenpeak"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    return folder
