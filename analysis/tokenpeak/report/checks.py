"""The claims page: what the source of an archive says and what its data say, and the checks that guard every sweep."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from tokenpeak.checks.catalogue import GUARDS, Claim, Judged, claims_about, guarded, judge, read_claims
from tokenpeak.checks.evidence import VERDICT_WORDS, Evidence, Guarded, undecided
from tokenpeak.errors import FactsError
from tokenpeak.paths import ARCHIVES
from tokenpeak.report.blocks.block import Block, Column, Part, Sentence, Table, answer, strong, table
from tokenpeak.report.blocks.digits import counted
from tokenpeak.report.view import SweepView

CLAIMS_FILE = "claims.yml"


@dataclass(frozen=True, kw_only=True)
class ClaimBlock(Block):
    """One claim with its verdict, the computation a line per step, and what holds instead."""

    id: str
    address: str
    statement: str
    verdict: str
    computation: tuple[str, ...]
    corrected: str
    matters: str
    source: str
    kind = "claim"

    def words(self) -> str:
        """The claim, its verdict and its arithmetic."""
        return "\n".join([f"{self.id}: {self.statement} {self.verdict}", *self.computation, self.corrected])


def address(claim_id: str) -> str:
    """Where a claim stands on the claims page."""
    return f"claim-{claim_id.lower()}"


def evidence(view: SweepView) -> Evidence:
    """The view's frames as checks read them."""
    frames = view.frames
    return Evidence(spec=view.spec, nodes=frames.nodes, configs=frames.configs, trials=frames.trials, runs=frames.runs)


def judged(view: SweepView) -> list[Judged]:
    """Each claim that lies beside the archive, with its verdict; of a sweep of one's own, those that name the sweep."""
    seen = evidence(view)
    claims = read_claims(view.path / CLAIMS_FILE)
    if claims or view.record.imported is not None:
        return [judge(claim, seen) for claim in claims]
    return [_judged_here(claim, seen) for claim in claims_about(view.record.name, ARCHIVES)]


def _judged_here(claim: Claim, seen: Evidence) -> Judged:
    """The verdict on another's claim; undecided where this sweep lacks a setting that the claim is of."""
    try:
        return judge(claim, seen)
    except FactsError as error:
        lacking = str(error).partition(". ")[0]
        return Judged(claim=claim, outcome=undecided(f"This sweep has no such trials: {lacking}."))


@lru_cache(maxsize=4)
def checked(view: SweepView) -> dict[str, Guarded]:
    """Findings of each guard in the sweep's figures."""
    return guarded(evidence(view))


def answer_claims(view: SweepView, claims: list[Judged], found: dict[str, Guarded]) -> Sentence:
    """How many claims hold, and whether the figures themselves have a mistake."""
    parts: list[Part] = []
    if claims:
        counts = Counter(each.outcome.verdict for each in claims)
        words = ", ".join(f"{counts[verdict]} {words}" for verdict, words in VERDICT_WORDS.items() if counts[verdict])
        number = counted(len(claims), "claim", "claims")
        of = (
            f"{number} of the source, checked by its data, arithmetic and physics: "
            if view.record.imported is not None
            else f"{number} published about such a sweep, checked by this one's own trials: "
        )
        parts += [of, strong(words)]
        parts.append(". ")
    findings = sum(len(each.findings) for each in found.values())
    looked = sum(each.looked_at > 0 for each in found.values())
    if not view.runs.height:
        return answer(*parts, "No config gave a result that may be ranked.")
    if findings:
        names = ", ".join(guard.mistake for guard in GUARDS if found[guard.name].findings)
        parts += [f"{looked} of {len(found)} checks of the figures ran; ", strong(_warnings(findings)), f": {names}."]
    else:
        parts.append(f"{looked} of {len(found)} checks of the figures ran; no warning.")
    return answer(*parts)


def _warnings(number: int) -> str:
    return f"{number} warning{'' if number == 1 else 's'}"


def claim_blocks(claims: list[Judged]) -> list[Block]:
    """All claims in one table, then each with its computation."""
    if not claims:
        return []
    found: list[Block] = [_overview(claims)]
    for each in claims:
        claim, outcome = each.claim, each.outcome
        found.append(
            ClaimBlock(
                id=claim.id,
                address=address(claim.id),
                statement=claim.statement,
                verdict=VERDICT_WORDS[outcome.verdict],
                computation=outcome.computation,
                corrected=outcome.corrected,
                matters=claim.matters,
                source=claim.source,
            )
        )
    return found


def _overview(claims: list[Judged]) -> Table:
    frame = pl.DataFrame(
        [
            {
                "id": each.claim.id,
                "statement": each.claim.statement,
                "verdict": VERDICT_WORDS[each.outcome.verdict],
                "corrected": each.outcome.corrected or None,
                "check": each.claim.check.replace("_", " "),
                "href": f"claims.html#{address(each.claim.id)}",
            }
            for each in claims
        ]
    )
    return table(
        frame,
        [
            Column(key="id", title="Claim", kind="code"),
            Column(key="verdict", title="Verdict", kind="state"),
            Column(key="statement", title="What is said"),
            Column(key="corrected", title="What holds"),
            Column(key="check", title="Check", hidden=True),
        ],
        name="claims",
        title="Claims and verdicts",
        hrefs={"id": "href"},
        note="Claims are given in our words; the computations below use this archive's figures.",
    )


def check_blocks(found: dict[str, Guarded]) -> list[Block]:
    """Tables of the checks: how much each looked at, and its findings."""
    frame = pl.DataFrame(
        [
            {
                "title": guard.title,
                "mistake": guard.mistake,
                "looked_at": found[guard.name].looked_at,
                "findings": len(found[guard.name].findings),
                "state": _state(found[guard.name]),
            }
            for guard in GUARDS
        ]
    )
    blocks: list[Block] = [
        table(
            frame,
            [
                Column(key="title", title="Check"),
                Column(key="state", title="Result", kind="state"),
                Column(key="mistake", title="Guards against"),
                Column(key="looked_at", title="Looked at", kind="number"),
                Column(key="findings", title="Warnings", kind="number"),
            ],
            name="checks",
            title="Checks of this sweep's own figures",
            note="Looked at: how many runs, trials, axes or pairs the check covers.",
        )
    ]
    rows = [
        {"check": guard.title, "where": finding.where, "text": finding.text}
        for guard in GUARDS
        for finding in found[guard.name].findings
    ]
    if not rows:
        return blocks
    columns = [Column(key="check", title="Check"), Column(key="where", title="Where"), Column(key="text", title="What")]
    return [*blocks, table(pl.DataFrame(rows), columns, name="findings", title="What the checks found")]


def _state(guard: Guarded) -> str:
    if not guard.looked_at:
        return "nothing to look at"
    return "warnings" if guard.findings else "no warning"
