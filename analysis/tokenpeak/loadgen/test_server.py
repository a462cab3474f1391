"""Test server: answers each token at an exact moment, so that the load generator's error can be measured.

Each completion request gets its first token one TTFT after its last byte was read, and each further token one ITL
later, whatever the client does. How late each token was handed to the kernel is recorded; `GET /stats` returns the
TTFT, the ITL and the lateness in seconds since it was last asked. It is in C (test_server.c), compiled once: at 1,024
streams × 50 tok/s on one of two cores a server in Python is late by more than the client is.
"""

import contextlib
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import LoadError
from tokenpeak.files import replacing

_END_S = 10.0


def program(*options: str) -> Path | None:
    """The server built once with the machine's C compiler and these options of it; None where that does not work."""
    source = Path(__file__).parent / "test_server.c"
    digest = hashlib.sha256(source.read_bytes() + " ".join(options).encode()).hexdigest()[:12]
    built = paths.state_dir() / f"test-server-{digest}"
    if built.is_file():
        return built
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        return None
    built.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(built) as part:
            subprocess.run([compiler, "-O2", *options, "-o", str(part), str(source)], capture_output=True, check=True)
    except subprocess.CalledProcessError:
        return None
    return built


def serving_argv(address: str, port: int, ttft_s: float, itl_s: float) -> list[str]:
    """The command that serves this timetable and prints its port; it ends when its input, a pipe, is closed."""
    compiled = program()
    if compiled is None:
        raise LoadError("The test server is a C program, and no compiler is here: apt-get install gcc.")
    return [str(compiled), address, str(port), str(ttft_s * 1e3), str(itl_s * 1e3)]


@contextmanager
def local_test_server(ttft_s: float, itl_s: float) -> Iterator[str]:
    """The address of a test server on this machine that ends with the block."""
    with started(serving_argv("127.0.0.1", 0, ttft_s, itl_s)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def started(argv: list[str], program_bytes: bytes = b"") -> Iterator[int]:
    """The port of a server that ends with the block; `program_bytes` go to its input first. Raises LoadError."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # Where it has ended already, that it printed no port says so below.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(program_bytes)
            process.stdin.flush()
        # A login shell may print before it.
        port = next((line.strip() for line in process.stdout if line.strip().isdigit()), None)
        if port is None:
            raise LoadError("The test server did not start; its message is above.")
        yield int(port)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
