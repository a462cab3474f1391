"""`python -m tests.mutants.run`: how many mutants of the sample the fast suite notices.

Judged is a commit, its tests and its code, in copies with an environment each: HEAD, or another by `--revision`. One
run of its suite says which tests run which lines; then each mutant is put into a copy and the tests that may notice it
are run. A mutant is killed by a test that fails with it, fails with it again when it runs alone, and passes alone
without it. Results are kept, so that a call that was cut short goes on.
"""

import argparse
import json
import os
import queue
import subprocess
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

from tests.mutants.coverage_map import CoverageMap, collect, noticing, read_map
from tests.mutants.judged import Copy, TimedOutError, suite
from tests.mutants.sample import ROOT, Mutant, applied, changed, read_sample
from tests.mutants.summary import Result, read_results, summary

CAP_S = 120.0
"""Tests of a mutant, in all."""
LIMIT_FACTOR, LIMIT_S = 4, 60.0
"""Tests with a mutant in the code have so many times what they took without, and so much longer."""


class BusyError(Exception):
    """The machine is too busy for a verdict: tests time out or fail without the mutant too."""


def _strike(copy: Copy, tests: list[str], limit_s: float, log: Path) -> tuple[str, list[str]]:
    """How the tests end, and which of them show it."""
    try:
        failed = copy.first_failure(tests, log=log, limit_s=limit_s)
    except TimedOutError:
        return "timed out", tests
    return ("killed" if failed else "survived"), [test for test in tests if failed in (test, test.split("::")[0])]


def _verdict(mutant: Mutant, mutated: str, copy: Copy, tests: list[str], limit_s: float, log: Path) -> Result:
    """The result, but for its time."""
    found = Result(mutant=mutant.id, revision=copy.revision, verdict="survived", tests=len(tests))
    while tests:
        with copy.changed(mutant.path, mutated):
            verdict, suspects = _strike(copy, tests, limit_s, log)
        if verdict == "survived":
            break
        without, _ = _strike(copy, suspects, limit_s, log)
        if verdict == "timed out":
            if without == "survived":
                return replace(found, verdict=verdict)
            raise BusyError
        with copy.changed(mutant.path, mutated):
            again, _ = _strike(copy, suspects, limit_s, log)
        if without == "survived" and again != "survived":
            return replace(found, verdict="killed", by=suspects[0])
        tests = [test for test in tests if test not in suspects]
    return found


def judge(mutant: Mutant, copy: Copy, coverage: CoverageMap, log: Path) -> Result:
    """What becomes of this mutant in the copy."""
    began_s = time.monotonic()
    mutated = applied(mutant, copy.root)
    if mutated is None:
        return Result(mutant=mutant.id, revision=copy.revision, verdict="stale")
    line, before, _ = changed((copy.root / mutant.path).read_text(), mutated)
    lines = set(range(line, line + before.count("\n") + 1))
    tests, capped = noticing(coverage, copy.root, mutant.path, lines, CAP_S)
    if not tests:
        return Result(mutant=mutant.id, revision=copy.revision, verdict="not covered")
    limit_s = LIMIT_FACTOR * sum(coverage.seconds[test] for test in tests) + LIMIT_S
    result = _verdict(mutant, mutated, copy, tests, limit_s, log)
    return replace(result, capped=capped, seconds=round(time.monotonic() - began_s, 1))


def judge_all(mutants: list[Mutant], copies: list[Copy], coverage: CoverageMap, results: Path) -> None:
    """Judge them in all copies at once, and keep each result as it comes."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    writing = threading.Lock()

    def work(copy: Copy) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                result = judge(mutant, copy, coverage, copy.root.with_suffix(".log"))
            except BusyError:
                print(f"no verdict  {mutant.id}: its tests fail or time out without it; try again", flush=True)
                continue
            with writing, results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
                print(f"{result.verdict:<11} {result.seconds:6.1f} s  {mutant.id}  {result.by or ''}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _kept(results: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--revision", default="HEAD", help="the commit that is judged")
    parser.add_argument("--only", nargs="+", action="extend", metavar="ID", help="only these mutants")
    parser.add_argument("--workers", type=int, default=2, help="copies in which tests run at once")
    asked = parser.parse_args()
    mutants = [mutant for mutant in read_sample() if not asked.only or mutant.id in asked.only]
    if unknown := set(asked.only or ()) - {mutant.id for mutant in mutants}:
        parser.error(f"no such mutant in the sample: {' '.join(sorted(unknown))}")
    words = ["git", "-C", str(ROOT), "rev-parse", f"{asked.revision}^{{commit}}"]
    revision = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    folder = ROOT / ".tokenpeak" / "mutants" / revision[:12]
    results = folder / "results.jsonl"
    copies = [Copy(root=folder / f"copy-{number}") for number in range(1, asked.workers + 1)]
    for copy in copies:
        copy.make(ROOT, revision)
    if not (folder / "map.json.gz").exists():
        collect(copies[0], suite(copies[0].root), folder / "coverage", asked.workers).write(folder / "map.json.gz")
    os.nice(19)
    judged = {result.mutant for result in read_results(_kept(results), revision)}
    waiting = [mutant for mutant in mutants if mutant.id not in judged]
    judge_all(waiting, copies, read_map(folder / "map.json.gz"), results)
    print(summary(mutants, read_results(_kept(results), revision)))


if __name__ == "__main__":
    main()
