"""Claim of a controller on a sweep: generations in its archive, so that of several controllers only the newest works.

    .controller-1.json    the controller that began the sweep: who, since when, and whether it has ended
    .controller-2.json    the one that resumed it, created exclusively; it marks the first as superseded

A controller signs its file every few seconds by the file's time, which the file server sets: whoever resumes the sweep
watches whether that goes on, and compares no clocks. The folder may lie on a network share, where flock(2) and a
process's id say nothing about another machine. A write to the archive is a file that is renamed once the claim was
found good; a newer controller removes files that were not renamed yet, so that none of them lands afterwards.
"""

import contextlib
import fcntl
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenpeak import paths
from tokenpeak.errors import FencedError
from tokenpeak.files import delete, delete_if_possible, sync, write_atomically
from tokenpeak.paths import inside
from tokenpeak.sweep.installation import master_secret
from tokenpeak.sweep.interrupt import Interrupt

_NAME = re.compile(r"\.controller-(\d{1,9})\.json")
SIGN_S = 3.0
SILENT_S = 15.0
"""Without a signature for so long, a controller is thought gone; should it wake up, its nodes and archive refuse it."""


def controller_name() -> str:
    """Name of this controller: its host and, since names repeat and archives are copied, a digest of its secret."""
    return f"{socket.gethostname()} ({master_secret().name.removeprefix('secret-')})"


def holder_of(sweep_id: str) -> str:
    """What every holder of this sweep begins with."""
    return f"sweep {sweep_id} from "


@contextmanager
def alone(sweep_id: str) -> Iterator[Path]:
    """The private folder of a sweep, emptied, and locked against another controller on this machine."""
    folder = inside(paths.state_dir() / "work", sweep_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FencedError(f"Sweep {sweep_id} is running already; follow or end that one.") from error
        for left in folder.iterdir():
            if left.is_dir():
                delete(left)
        yield folder
        delete_if_possible(folder)
    finally:
        os.close(descriptor)


class SweepClaim:
    """One generation of a sweep's controllers. Once another has superseded it, `require` raises and nothing goes on."""

    def __init__(self, archive: Path, generation: int, interrupt: Interrupt) -> None:
        self.sweep_id = archive.name
        self.generation = generation
        self._archive = archive
        self._path = _path(archive, generation)
        self._interrupt = interrupt
        self._content: dict[str, Any] = {
            "generation": generation,
            "controller": controller_name(),
            "claimed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    @property
    def holder(self) -> str:
        """Who has a node, in words for whoever finds it locked; no other controller, or generation, has the same."""
        return f"{holder_of(self.sweep_id)}{self._content['controller']}, generation {self.generation}"

    @property
    def on_node(self) -> dict[str, Any]:
        """What each command on a node carries."""
        return {"sweep_id": self.sweep_id, "generation": self.generation}

    @property
    def is_lost(self) -> bool:
        """Whether this controller knows that another has the sweep."""
        return self._interrupt.fenced is not None

    def lose(self, reason: str) -> None:
        """Another has the sweep, by what the archive or a node says: end at once, and touch nothing any more."""
        self._interrupt.fence(reason)

    def require(self) -> None:
        """Raise FencedError where another controller has the sweep, as its archive says at this moment."""
        if self._interrupt.fenced is None:
            # Opened anew each time: that is when a network file system asks its server.
            superseded = _read(self._path).get("superseded_by")
            if superseded is not None:
                self.lose(
                    f"Sweep {self.sweep_id} is carried on by {superseded}: this controller, generation "
                    f"{self.generation}, ends without touching the archive or a node."
                )
        if self._interrupt.fenced is not None:
            raise FencedError(self._interrupt.fenced)

    def write(self) -> bool:
        """Create this generation's file; false where another controller has just created it."""
        try:
            with self._path.open("x") as file:
                json.dump(self._content, file)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        sync(self._archive)
        return True

    def supersede(self) -> None:
        """Mark every earlier claim, then remove what its controller had begun to write."""
        for number, earlier in _claims(self._archive).items():
            if number < self.generation:
                content = {**earlier, "superseded_by": f"{self._content['controller']}, generation {self.generation}"}
                write_atomically(_path(self._archive, number), json.dumps(content))
        for part in (*self._archive.glob(".*.part"), *self._archive.glob("*/.*.part")):
            delete(part)

    def end(self) -> None:
        """Note that this controller has ended: whoever resumes the sweep need not watch it."""
        write_atomically(self._path, json.dumps({**self._content, "ended": True}))

    @contextmanager
    def kept(self) -> Iterator["SweepClaim"]:
        """Sign in the block, and note the end after it; a claim that is lost meanwhile interrupts the sweep."""
        closing = threading.Event()
        thread = threading.Thread(target=self._sign_until, args=(closing,), name="claim", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            closing.set()
            thread.join(timeout=SIGN_S)
            with contextlib.suppress(FencedError, OSError):
                self.require()
                self.end()

    def _sign_until(self, closing: threading.Event) -> None:
        while not closing.wait(SIGN_S):
            try:
                self.require()
                os.utime(self._path)
            except FencedError:
                return
            except FileNotFoundError:
                self._write_again()
            except OSError:
                continue  # the share is away: what is written there next finds out

    def _write_again(self) -> None:
        """Create the file anew where somebody deleted the archive, once that is written again."""
        if (self._archive / "sweep.json").is_file():
            with contextlib.suppress(OSError):
                self.write()


def begin(archive: Path, interrupt: Interrupt) -> SweepClaim:
    """The claim of the controller that begins a sweep."""
    claim = SweepClaim(archive, 1, interrupt)
    claim.write()
    return claim


def take_over(archive: Path, interrupt: Interrupt, *, above: int) -> SweepClaim:
    """The claim of a controller that resumes a sweep, of a generation higher than `above` and any in the archive.

    Raises FencedError where another controller resumes it at this moment.
    """
    # An archive from before there were claims has none: its controller counts as the first.
    claim = SweepClaim(archive, max([1, above, *_claims(archive)]) + 1, interrupt)
    if not claim.write():
        raise FencedError(f"Sweep {archive.name} is being resumed by another controller at this moment.")
    claim.supersede()
    return claim


def require_silence(archive: Path, interrupt: Interrupt, say: Callable[[str], None]) -> None:
    """Watch each claim that has not ended; one of this controller ended with its process, which `alone` has shown.

    Raises FencedError where one is signed.
    """
    own = controller_name()
    watched = {
        number: claim
        for number, claim in _claims(archive).items()
        if not {"ended", "superseded_by"} & claim.keys() and claim.get("controller") != own
    }
    if not watched:
        return
    who = " and ".join(f"{claim.get('controller')}, generation {number}" for number, claim in watched.items())
    say(f"Watching for {SILENT_S:g} s whether the controller of this sweep lives: {who}")
    signed = {number: _signed_ns(_path(archive, number)) for number in watched}
    until_s = time.monotonic() + SILENT_S
    while time.monotonic() < until_s and not interrupt.asked.wait(1.0):
        alive = next((number for number in watched if _signed_ns(_path(archive, number)) != signed[number]), None)
        if alive is not None:
            raise FencedError(
                f"Sweep {archive.name} is carried out by {watched[alive].get('controller')}, generation {alive}, which "
                "signs its claim in the archive: nothing was touched. End it there, or wait until it has gone."
            )


def _path(archive: Path, generation: int) -> Path:
    """Where a claim is; what begins with a dot is no part of an archive that leaves this site."""
    return archive / f".controller-{generation}.json"


def _claims(archive: Path) -> dict[int, dict[str, Any]]:
    """Generation → its claim; one that was not written to its end says nothing."""
    matches = ((path, _NAME.fullmatch(path.name)) for path in archive.glob(".controller-*.json"))
    return {int(match[1]): _read(path) for path, match in matches if match}


def _read(path: Path) -> dict[str, Any]:
    """A claim's content; nothing where there is none, or none that is whole."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _signed_ns(path: Path) -> int:
    """When the file was last signed, by its server's clock; opened, so that a network file system asks its server."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0
