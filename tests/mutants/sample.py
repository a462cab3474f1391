"""A fixed random sample of cosmic-ray's mutants, in `sample.json`; `python -m tests.mutants.sample` draws it anew.

A place is what one of cosmic-ray's kinds of operators can change. Places are drawn with equal chances, then one mutant
of each: else a `+`, which can become eleven other operators, would count eleven times as much as a `break`. Left out is
what judges no suite: what is only an annotation, and what a compiler or the first import already refuses.
"""

import json
import os
import random
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("sample.json")
PACKAGES = (
    "ranking",
    "results",
    "search",
    "plan",
    "predict",
    "records",
    "store",
    "loadgen",
    "sweep",
    "node",
    "report",
)
SEED = 1
SIZE = 300
IMPORT_S = 10


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """What one operator of cosmic-ray makes of one of its places in a module: lines before, and after."""

    path: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str

    @property
    def id(self) -> str:
        """As short as it can be: `ranking/ties.py:NumberReplacer:3`."""
        return f"{self.path.removeprefix('analysis/tokenpeak/')}:{self.operator.split('/')[1]}:{self.occurrence}"

    @property
    def package(self) -> str:
        return self.path.split("/")[2]

    def __str__(self) -> str:
        before, after = (" ⏎ ".join(text.strip() for text in side.split("\n")) for side in (self.before, self.after))
        return f"{self.path}:{self.line}: {before} -> {after or '(nothing)'}"


def read_sample() -> list[Mutant]:
    """The checked-in sample, in the order in which it was drawn."""
    return [Mutant(**entry) for entry in json.loads(SAMPLE.read_text())]


def changed(source: str, mutated: str) -> tuple[int, str, str]:
    """The first line that differs, and all lines from there to the last that does: before and after."""
    old, new = source.split("\n"), mutated.split("\n")
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    return head + 1, "\n".join(old[head : len(old) - tail]), "\n".join(new[head : len(new) - tail])


def _mutated(source: str, operator: str, occurrence: int) -> str | None:
    """The source with this mutation in it; None where cosmic-ray has none, or fails, as at `except (a.B,)`."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    try:
        return mutate_code(source, get_operator(operator)(), occurrence)
    except AttributeError:
        return None


def applied(mutant: Mutant, root: Path) -> str | None:
    """The module's source with the mutant in it; None where the tree no longer has these lines: the mutant is stale.

    Lines may have moved: of several places with the same text, it is the one whose occurrence is closest.
    """
    source = (root / mutant.path).read_text() if (root / mutant.path).exists() else ""
    if f"\n{mutant.before}\n" not in f"\n{source}\n":
        return None
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    lines, wanted = source.split("\n"), mutant.before.split("\n")
    operator = get_operator(mutant.operator)()
    starts = [start[0] for node in ast_nodes(get_ast(source)) for start, _ in operator.mutation_positions(node)]
    for occurrence in sorted(range(len(starts)), key=lambda index: abs(index - mutant.occurrence)):
        if lines[starts[occurrence] - 1] in wanted:
            mutated = _mutated(source, mutant.operator, occurrence)
            if mutated is not None and (mutant.before, mutant.after) == changed(source, mutated)[1:]:
                return mutated
    return None


def _is_annotation(leaf: object) -> bool:
    """Whether this is part of an annotation; what is called in one, as Pydantic's `Field(gt=0)`, is none."""
    node = leaf
    while (parent := getattr(node, "parent", None)) is not None:
        if parent.type == "trailer" and parent.children[0] == "(":
            return False
        place = next(index for index, child in enumerate(parent.children) if child is node)
        if (parent.type == "annassign" and place == 1) or (parent.type == "tfpdef" and place == 2):
            return True
        if parent.type == "funcdef" and parent.children[place - 1] == "->":
            return True
        if parent.type in ("suite", "file_input"):
            return False
        node = parent
    return False


def places(root: Path) -> Iterator[list[tuple[str, str, int]]]:
    """For each place, the mutants that cosmic-ray has for it: path, operator and occurrence."""
    from cosmic_ray.ast import get_ast_from_path
    from cosmic_ray.commands.init import _all_work_items

    for package in PACKAGES:
        for path in sorted((root / "analysis" / "tokenpeak" / package).rglob("*.py")):
            tree, found = get_ast_from_path(path), defaultdict(list)
            for item in _all_work_items([path], {}):
                (mutation,) = item.mutations
                kind = mutation.operator_name.split("_")[0]
                found[mutation.start_pos, mutation.end_pos, kind].append(
                    (path.relative_to(root).as_posix(), mutation.operator_name, mutation.occurrence)
                )
            yield from (
                mutants
                for (start, _, _), mutants in found.items()
                if not _is_annotation(tree.get_leaf_for_position(start, include_prefixes=True))
            )


def _imports(path: str, source: str) -> bool:
    """Whether the module compiles without a warning and runs to its end when it is imported."""
    name = ".".join(Path(path).with_suffix("").parts[1:])
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.alarm(IMPORT_S)
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)
    sys.argv[1:] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code = compile(source, path, "exec", dont_inherit=True)
        __import__(name)
        exec(code, {"__name__": name, "__file__": path, "__package__": name.rpartition(".")[0]})
    except BaseException:
        os._exit(1)
    os._exit(0)


def draw(root: Path, size: int = SIZE, seed: int = SEED) -> list[Mutant]:
    """The sample of this tree: the same for the same sources, size and seed."""
    chance = random.Random(seed)
    drawn: list[Mutant] = []
    population = list(places(root))
    chance.shuffle(population)
    for mutants in population:
        path, operator, occurrence = chance.choice(mutants)
        source = (root / path).read_text()
        mutated = _mutated(source, operator, occurrence)
        if mutated is not None and _imports(path, mutated):
            line, before, after = changed(source, mutated)
            drawn.append(
                Mutant(path=path, operator=operator, occurrence=occurrence, line=line, before=before, after=after)
            )
        if len(drawn) == size:
            break
    return drawn


def main() -> None:
    """Draw the sample of this tree and write it."""
    sample = draw(ROOT)
    SAMPLE.write_text(json.dumps([asdict(mutant) for mutant in sample], indent=1, ensure_ascii=False) + "\n")
    print(f"Drew {len(sample)} mutants into {SAMPLE.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
