"""Run by an engine's own Python: which command lines its `vllm serve` would refuse, without starting anything.

Standard input is a JSON list of argument lists; standard output a JSON list with what was said of each, or null.
"""

import contextlib
import importlib
import io
import json
import sys

PLACES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")


def found(places: tuple[str, ...], name: str) -> object:
    """What the first of these modules that there is has by this name."""
    for place in places:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(place), name)
    raise ImportError(f"no {name} in {places}")


def refusal(parser: object, argv: list[str]) -> str | None:
    """The last line that the parser says of the arguments when it refuses them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parser.parse_args(argv)  # type: ignore[attr-defined]
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    except Exception as error:  # whatever a type's own reader raises
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        make = found(PLACES, "make_arg_parser")
        flexible = found(PARSERS, "FlexibleArgumentParser")
        made = make(flexible())  # type: ignore[operator]
        answers = [refusal(made, argv) for argv in json.load(sys.stdin)]
    json.dump(answers, out)
