"""Environment of everything that root runs for a restricted user: one that the user chooses nothing of.

Some sudoers keep the caller's PATH, and every one keeps limits, priority and ignored signals, which production would
inherit when it is started again: processors, scheduling, control group and the score of the kernel's memory killer too,
and all that `process_attributes` lists. `environment_words` is what root's command is started with; `enter` does the
rest.
"""

from __future__ import annotations

import os
import pwd
import resource
import signal
from contextlib import suppress
from pathlib import Path

from tokenpeak.node import process_attributes, root_files

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
    process_attributes.leave()
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
