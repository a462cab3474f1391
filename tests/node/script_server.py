"""Forks a process for each run of the node script that it is asked for: `script_server.py BUNDLE`, JSON lines on stdin.

A Python with all of the script loaded already, because to start one costs more processor time than most commands. A
line has `words`, `log` and `env`; the answer is the pid of a detached process that runs the script with these words.
"""

import importlib
import json
import os
import pkgutil
import signal
import sys


def run(asked: "dict[str, object]") -> None:
    """Be the node script, as `process.start_again` starts it, to the end of this process."""
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        try:
            log = os.open(str(asked["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = [str(asked["script"]), *asked["words"]]
        from tokenpeak.node.__main__ import main

        status = main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve(bundle: str) -> None:
    """Fork for each line of stdin until it closes."""
    sys.path.insert(0, bundle)
    package = importlib.import_module("tokenpeak.node")
    for module in pkgutil.walk_packages(package.__path__, "tokenpeak.node."):
        importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(asked)
        print(pid, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
