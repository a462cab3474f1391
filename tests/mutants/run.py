"""`python -m tests.mutants.run`: how many mutants of the sample the fast tests of their own package notice.

Judged is a commit, its tests and its code, in copies with an environment each: HEAD, or another by `--revision`. Each
mutant is put into a copy and its package's tests are run. It is killed when one fails, or hangs, and all pass without
it. Results are kept, so that a call that was cut short goes on.
"""

import argparse
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import binomtest
from tests.mutants.judged import Copy
from tests.mutants.sample import PACKAGES, ROOT, Mutant, applied, read_sample

OTHERS = {"predict": ["plan"], "records": ["store", "ranking"], "results": ["loadgen", "ranking"]}
"""Folders of tests that judge a package which has none of its own."""
LIMIT_FACTOR, LIMIT_S = 4, 60.0
"""Tests with a mutant in the code have so many times what they took without, and so much longer."""


def folders(package: str) -> list[str]:
    """Where the tests of a package are."""
    return [f"tests/{name}" for name in OTHERS.get(package, [package])]


def verdict(mutant: Mutant, copy: Copy, limit_s: float) -> str:
    """What becomes of this mutant in the copy: `killed`, `survived`, or `stale`, which counts nowhere."""
    mutated = applied(mutant, copy.root)
    if mutated is None:
        return "stale"
    with copy.changed(mutant.path, mutated):
        return "survived" if copy.ended(folders(mutant.package), limit_s) == "passed" else "killed"


def judge_all(mutants: Sequence[Mutant], copies: Sequence[Copy], results: Path) -> None:
    """Judge them in all copies at once, and keep each verdict as it comes."""
    limits_s: dict[str, float] = {}
    for package in dict.fromkeys(mutant.package for mutant in mutants):
        began_s = time.monotonic()
        if copies[0].ended(folders(package)) != "passed":
            raise SystemExit(f"The tests of {package} fail without a mutant: {' '.join(folders(package))}.")
        limits_s[package] = LIMIT_FACTOR * (time.monotonic() - began_s) + LIMIT_S
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    writing = threading.Lock()

    def work(copy: Copy) -> None:
        while not waiting.empty():
            mutant = waiting.get()
            became = verdict(mutant, copy, limits_s[mutant.package])
            with writing, results.open("a") as file:
                file.write(json.dumps({"mutant": mutant.id, "verdict": became}) + "\n")
                print(f"{became:<9} {mutant.id}", flush=True)

    threads = [threading.Thread(target=work, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_verdicts(results: Path) -> dict[str, str]:
    """Mutant → verdict, of all that were judged."""
    lines = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    return {line["mutant"]: line["verdict"] for line in lines}


def summary(mutants: Sequence[Mutant], verdicts: dict[str, str]) -> str:
    """A line for each package and one for all, with the share that was killed, then each mutant that survived."""
    lines = [f"{'package':<9}{'n':>5}{'killed':>8}  share  95% interval"]
    for package in (*PACKAGES, "all"):
        own = [verdicts.get(mutant.id) for mutant in mutants if package in (mutant.package, "all")]
        killed, n = own.count("killed"), own.count("killed") + own.count("survived")
        interval = binomtest(killed, n).proportion_ci(method="wilson") if n else None
        share = f"{killed / n:5.0%}  {interval.low:4.0%} to {interval.high:4.0%}" if interval else "–"
        lines.append(f"{package:<9}{n:5}{killed:8}  {share}")
    for word in ("survived", "stale"):
        lines += [f"{word}: {mutant}" for mutant in mutants if verdicts.get(mutant.id) == word]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--revision", default="HEAD", help="the commit that is judged")
    parser.add_argument("--only", nargs="+", action="extend", metavar="ID", help="only these mutants")
    parser.add_argument("--workers", type=int, default=2, help="copies in which tests run at once")
    options = parser.parse_args()
    mutants = [mutant for mutant in read_sample() if not options.only or mutant.id in options.only]
    if unknown := set(options.only or ()) - {mutant.id for mutant in mutants}:
        parser.error(f"no such mutant in the sample: {' '.join(sorted(unknown))}")
    words = ["git", "-C", str(ROOT), "rev-parse", f"{options.revision}^{{commit}}"]
    revision = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    folder = ROOT / ".tokenpeak" / "mutants" / revision[:12]
    folder.mkdir(parents=True, exist_ok=True)
    copies = [Copy(root=folder / f"copy-{number}") for number in range(1, options.workers + 1)]
    for copy in copies:
        copy.make(ROOT, revision)
    os.nice(19)
    results = folder / "results.jsonl"
    judged = read_verdicts(results)
    judge_all([mutant for mutant in mutants if mutant.id not in judged], copies, results)
    print(summary(mutants, read_verdicts(results)))


if __name__ == "__main__":
    main()
