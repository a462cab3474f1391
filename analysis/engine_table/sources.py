"""A release's source files, a few kilobytes each, out of wheels of hundreds of megabytes.

pip finds the wheel on whatever index this machine is set up for; the files are then read by range requests, as pip's
own `fast-deps` does.
"""

import io
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

BLOCK = 1 << 19
PLATFORMS = ("1", "2014", *(f"_2_{minor}" for minor in (17, 24, 28, 31, 34, 35)))


def wheel_url(release: str, python: str = "3.12") -> str:
    """Where pip would get the wheel of this vLLM release from; nothing is downloaded or installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "-qq"]
        command += ["--only-binary", ":all:", "--python-version", python, "--target", folder]
        for platform in PLATFORMS:
            command += ["--platform", f"manylinux{platform}_x86_64"]
        subprocess.run([*command, "--report", str(report), f"vllm=={release}"], check=True)
        url: str = json.loads(report.read_text())["install"][0]["download_info"]["url"]
        return url


class RangedFile(io.RawIOBase):
    """A remote file that can be read and sought like a local one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.position = 0
        with self._range("-1") as response:
            self.size = int(response.headers["Content-Range"].rsplit("/", 1)[1])

    def _range(self, span: str) -> "urllib.request._UrlopenRet":
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={span}"})  # noqa: S310 — pip gave it
        return urllib.request.urlopen(request)  # noqa: S310

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; costs nothing."""
        self.position = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence] + offset
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer from the position on."""
        end = min(self.size, self.position + len(buffer))
        if end <= self.position:
            return 0
        with self._range(f"{self.position}-{end - 1}") as response:
            data = response.read()
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def release_files(release: str, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Path in the wheel → text, of the files of a release that `wanted` picks."""
    with zipfile.ZipFile(io.BufferedReader(RangedFile(wheel_url(release)), BLOCK)) as wheel:
        members = sorted(wheel.infolist(), key=lambda member: member.header_offset)
        return {member.filename: wheel.read(member).decode() for member in members if wanted(member.filename)}
