"""Environment of everything that root runs for a restricted user: one that the user chooses nothing of.

Some sudoers keep the caller's PATH, and every one keeps limits, priority and ignored signals, which production would
inherit when it is started again: processors, scheduling, control group and the score of the kernel's memory killer too,
and all that `process_attributes` lists. `environment_words` is what root's command is started with; `enter` does the
rest.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import signal
from contextlib import suppress
from pathlib import Path

from tokenpeak.node.machine import root_files
from tokenpeak.node.machine.error import ScriptError

TIMER_SLACK_NS = 50_000
"""The kernel's own. A slack of 0 would mean that of the caller, from whom this process has it."""
_PROC_INIT = Path("/proc/1")
_SELF = Path("/proc/self")

_SET_TIMERSLACK, _SET_TSC, _MCE_KILL, _SET_CHILD_SUBREAPER, _SET_THP_DISABLE = 29, 26, 33, 36, 41
_SVE_SET_VL, _SVE_GET_VL, _SME_SET_VL, _SME_GET_VL, _VECTOR_BYTES = 50, 51, 63, 64, 0xFFFF
_SET_SPECULATION, _SPECULATION_ENABLED, _SPECULATIONS = 53, 2, (0, 1, 2)
_SCHED_CORE, _SHARE_FROM = 62, 3
_GET_MDWE, _SET_MEMORY_MERGE = 66, 67

_CALLS = {
    "x86_64": {"set_mempolicy": 238, "ioprio_set": 251, "keyctl": 250, "sched_setattr": 314},
    "aarch64": {"set_mempolicy": 237, "ioprio_set": 30, "keyctl": 219, "sched_setattr": 274},
}
"""Numbers of system calls that the C library has no function for."""
_IO_OF_PROCESS, _JOIN_SESSION_KEYRING = 1, 1
_KEEP_ALL, _CLAMPS = 0x08 | 0x10, 0x20 | 0x40
_NO_CLAMP, _MOST_CLAMP = 0xFFFFFFFF, 1024


class _SchedAttr(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("size", "policy")),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("runtime", "deadline", "period")),
        *((name, ctypes.c_uint32) for name in ("util_min", "util_max")),
    ]


def leave() -> None:
    """Set each back to what the machine's first process has, or to the kernel's own where that cannot be seen."""
    libc = ctypes.CDLL(None, use_errno=True)
    # First of all: by it every wait of what follows may take years.
    _prctl(libc, _SET_TIMERSLACK, _number(_PROC_INIT / "timerslack_ns", 10) or TIMER_SLACK_NS)
    # Before a system call is asked for by its number.
    libc.personality(ctypes.c_ulong(_number(_PROC_INIT / "personality", 16)))
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    _prctl(libc, _SET_THP_DISABLE, 0)
    _prctl(libc, _SET_MEMORY_MERGE, 0)
    _prctl(libc, _SET_CHILD_SUBREAPER, 0)
    _prctl(libc, _MCE_KILL, 0)
    if _machine() == "x86_64":
        _prctl(libc, _SET_TSC, 1)
    _leave_vectors(libc)
    # The first process shares its processors with everybody.
    _prctl(libc, _SCHED_CORE, _SHARE_FROM, 1)
    if _speculation(_SELF) != _speculation(_PROC_INIT):
        for feature in _SPECULATIONS:
            _prctl(libc, _SET_SPECULATION, feature, _SPECULATION_ENABLED)
    _call(libc, "set_mempolicy", 0, 0, 0)
    _call(libc, "ioprio_set", _IO_OF_PROCESS, 0, 0)
    _call(libc, "keyctl", _JOIN_SESSION_KEYRING, 0)
    _leave_clamps(libc)
    filtered = _text(_PROC_INIT / "coredump_filter").strip()
    if filtered:
        with suppress(OSError):
            root_files.write_setting(_SELF / "coredump_filter", f"0x{filtered}")


def require_left() -> None:
    """Raise ScriptError where the caller has set what cannot be set back: production would be started again with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Declared of this function alone, so that a kernel without it answers -1.
    kept = ["memory that is not to become executable (PR_SET_MDWE)"] if _prctl(libc, _GET_MDWE) > 0 else []
    of_init = _speculation(_PROC_INIT)
    kept += [
        f"{name} ({said})"
        for name, said in _speculation(_SELF).items()
        if "force" in said and "force" not in of_init.get(name, "force")
    ]
    if kept:
        raise ScriptError(
            "refused",
            f"The process that called this command has set what the kernel never sets back: {', '.join(kept)}. "
            "Production would be started again with it: call the command from a new login.",
        )


def _leave_vectors(libc: ctypes.CDLL) -> None:
    """Have vectors of the machine's own length from the next execve on, where the processor has such a length."""
    if _machine() == "aarch64":
        for ask, put in ((_SVE_GET_VL, _SVE_SET_VL), (_SME_GET_VL, _SME_SET_VL)):
            found = _prctl(libc, ask)
            if found > 0:
                _prctl(libc, put, found & _VECTOR_BYTES)


def _leave_clamps(libc: ctypes.CDLL) -> None:
    """Ask for a processor's time and speed as every process does that says nothing of it."""
    attributes = _SchedAttr()
    attributes.size = ctypes.sizeof(attributes)
    _call(libc, "sched_setattr", 0, ctypes.addressof(attributes), 0)
    attributes.flags = _KEEP_ALL | _CLAMPS
    # The second is for a kernel that knows of no way back.
    for least, most in ((_NO_CLAMP, _NO_CLAMP), (0, _MOST_CLAMP)):
        attributes.util_min, attributes.util_max = least, most
        if _call(libc, "sched_setattr", 0, ctypes.addressof(attributes), 0) == 0:
            return


def _prctl(libc: ctypes.CDLL, option: int, *values: int) -> int:
    """Its answer; -1 from a kernel that does not know the option."""
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return int(libc.prctl(ctypes.c_int(option), *words))


def _call(libc: ctypes.CDLL, name: str, *values: int) -> int:
    """The answer of a system call; -1 where it is refused, or its number is not known."""
    number = _CALLS.get(_machine(), {}).get(name)
    if number is None:
        return -1
    return int(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in values)))


def _machine() -> str:
    """The machine that this program was built for, where that is a 64-bit one."""
    return os.uname().machine if ctypes.sizeof(ctypes.c_void_p) == 8 else ""


def _speculation(process: Path) -> dict[str, str]:
    """The kernel's account of a process's guesses at branches and stores."""
    lines = (line.partition(":") for line in _text(process / "status").splitlines())
    return {name: said.strip() for name, _, said in lines if name.startswith("Speculation")}


def _number(path: Path, base: int) -> int:
    text = _text(path).strip()
    try:
        return int(text, base)
    except ValueError:
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


FIXED: dict[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin",
    "HOME": pwd.getpwuid(0).pw_dir,
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}
_LIMITS = (
    "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RSS", "RTPRIO", "RTTIME",
    "SIGPENDING", "STACK",
)  # fmt: skip
_INIT = 1
_GROUPS = "/sys/fs/cgroup"
_SYSTEMD = Path("/run/systemd/system")


def environment_words() -> list[str]:
    """The program and words in front of a command that give it this environment alone."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in FIXED.items())]


def enter() -> None:
    """Leave behind what the caller of this process chose: variables, attributes, limits, scheduling, mask, signals."""
    os.environ.clear()
    os.environ.update(FIXED)
    os.umask(0o022)
    for number in signal.valid_signals():
        # Python's own dispositions, and those that no process can change, are neither ignored nor the caller's.
        if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.geteuid() != 0:
        return
    leave()
    _schedule_as_init()
    _join_groups_of_init()
    with suppress(OSError):
        root_files.write_setting(Path("/proc/self/oom_score_adj"), "0")
    for name in _LIMITS:
        limit = getattr(resource, f"RLIMIT_{name}", None)
        if limit is not None:
            _as_init(limit)


def _schedule_as_init() -> None:
    """Have the processors of the machine's first process, and no other claim to them than most have."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(_INIT))


def _join_groups_of_init() -> None:
    """Leave the control groups of the caller, who may be allowed to freeze them. Where systemd runs this is a unit."""
    if _SYSTEMD.is_dir():
        return
    of_init = _groups(_INIT)
    for controllers, group in _groups(os.getpid()).items():
        wanted = of_init.get(controllers)
        if wanted in (None, group) or "/.." in str(wanted):
            continue
        mounts = [controllers.partition("name=")[2] or controllers] if controllers else ["", "unified"]
        for mount in mounts:
            # 0 is the process that writes it.
            with suppress(OSError):
                root_files.write_setting(Path(f"{_GROUPS}/{mount}/{wanted}/cgroup.procs"), "0")


def _groups(pid: int) -> dict[str, str]:
    """The control group of a process in each hierarchy, by its controllers; those of the unified one are empty."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}


def _as_init(limit: int) -> None:
    """Set a limit to that of the machine's first process, or as near to it as this one may."""
    try:
        wanted = resource.prlimit(_INIT, limit)
        resource.setrlimit(limit, wanted)
    except (OSError, ValueError):
        _, most = resource.getrlimit(limit)
        try:
            resource.setrlimit(limit, (most, most))
        except (OSError, ValueError):
            return
