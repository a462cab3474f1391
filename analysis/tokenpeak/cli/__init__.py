"""The `tokenpeak` command line: a module for commands that belong together, imported only when one of them runs."""

import importlib
import os
import sys
from typing import Any

import click

from tokenpeak.errors import ExitStatus, TokenpeakError, suggestion
from tokenpeak.files import refusal
from tokenpeak.own_place import require_unmoved, require_working_folder
from tokenpeak.paths import HOME, IS_INSTALLED, ROOT, state_dir
from tokenpeak.terminal import echo, echo_text

COMMANDS: dict[str, str] = {
    "init": "init",
    "demo": "init",
    "tune": "tune",
    "check": "check",
    "schema": "check",
    "probe": "probe",
    "observe": "observe",
    "plan": "plan",
    "predict": "predict",
    "sweep": "sweep",
    "apply": "apply",
    "rollback": "apply",
    "explain": "predict",
    "gate": "gate",
    "install": "probe",
    "uninstall": "probe",
    "restore": "nodes",
    "status": "nodes",
    "notify": "probe",
    "load": "load",
    "quality": "quality",
    "calibrate": "load",
    "ingest": "database",
    "sql": "database",
    "database": "database",
    "replay": "replay",
    "archive": "archive",
    "import": "archive",
    "export": "archive",
    "prune": "archive",
    "report": "site",
    "docs": "site",
    "serve": "site",
    "publish": "site",
    "completion": "options",
}
"""Command → module of this package that defines it, in the order of `tokenpeak --help`."""


_ANYWHERE = ("init", "demo", "completion")
"""Commands that make a working folder or need none."""


class LazyGroup(click.Group):
    """A group that imports a command's module when it is asked for, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`; an unknown one is an error that names the nearest."""
        if cmd_name not in COMMANDS:
            raise click.UsageError(f"No command {cmd_name!r}. {suggestion(cmd_name, COMMANDS)}")
        module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}")
        # A function cannot be called `import`.
        command: click.Command = getattr(module, {"import": "import_"}.get(cmd_name, cmd_name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As of any group; no command works in folders that others can change, save to say what it does."""
        name, command, rest = super().resolve_command(ctx, args)
        if name not in _ANYWHERE and not ctx.resilient_parsing and not {"-h", "--help"} & {*rest}:
            require_own_folders()
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """The command's own result; Ctrl-C ends it with the status of an interruption."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            echo("Interrupted.", err=True)
            ctx.exit(ExitStatus.INTERRUPTED)


def require_own_folders() -> None:
    """InputError where the working folder, or root's state folder, is in the hands of others."""
    if IS_INSTALLED or HOME != ROOT:
        require_working_folder(HOME)
    require_unmoved(state_dir(), "state", "Set TOKENPEAK_STATE to a folder of root's own, or use `sudo -H`.")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tokenpeak")
def tokenpeak() -> None:
    """Find the vLLM settings that serve a model best on your GPU machines, and prove it."""


def main() -> None:
    """Run the command line; an error is a line on standard error, and no traceback."""
    # Whatever Python is started from here on, multiprocessing's among them, loads no module of the current folder: that
    # may be another user's.
    os.environ["PYTHONSAFEPATH"] = "1"
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        # As cron and scripts set it; Ansible works in no locale but a UTF-8 one.
        os.environ["LC_ALL"] = "C.UTF-8"
    # NumPy's matrices here are small, and where others want the processors, threads that share one wait for each other:
    # at a load of 40 on two, 47 s instead of 0.9 s for matrices of 200. It is read when NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        tokenpeak(standalone_mode=True)
    except TokenpeakError as error:
        echo_text(f"tokenpeak: {error}", err=True)
        sys.exit(error.exit_status)
    except OSError as error:
        if (words := refusal(error)) is None:
            sys.exit(_defect(error))
        echo(f"tokenpeak: {words}", err=True)
        sys.exit(ExitStatus.ERROR)
    except Exception as error:  # whatever it was, a user gets a line and a file to send
        sys.exit(_defect(error))


def _defect(error: Exception) -> ExitStatus:
    from tokenpeak.cli.defect import report_defect

    return report_defect(error)
