"""Environment of everything that root runs for a restricted user: one that the user chooses nothing of.

Some sudoers keep the caller's PATH, and every one keeps limits, priority and ignored signals, which production would
inherit when it is started again: processors, scheduling and the score of the kernel's memory killer too.
`environment_words` is what root's command is started with; `enter` does the rest.
"""

from __future__ import annotations

import os
import pwd
import resource
import signal
from contextlib import suppress
from pathlib import Path

from tokenpeak.node import process, root_files

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


def environment_words() -> list[str]:
    """The program and words in front of a command that give it this environment alone."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in FIXED.items())]


def enter() -> None:
    """Leave behind what the caller of this process chose: variables, limits, scheduling, mask, ignored signals."""
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
    _schedule_as_init()
    with suppress(OSError):
        root_files.write_setting(Path("/proc/self/oom_score_adj"), "0")
    for name in _LIMITS:
        limit = getattr(resource, f"RLIMIT_{name}", None)
        if limit is not None:
            _as_init(limit)


def _schedule_as_init() -> None:
    """Have the processors of the machine's first process, and no other claim to them or to disks than most have."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(_INIT))
    # Python has no call for it.
    process.run(["ionice", "-c", "0", "-p", str(os.getpid())])


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
