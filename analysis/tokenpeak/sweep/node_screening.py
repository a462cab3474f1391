"""Screening queue: launches of one config that a group's nodes lack, and which nodes they exclude."""

from collections.abc import Callable, Collection, Sequence

from tokenpeak.plan.node_screening import screened_nodes, screening_config
from tokenpeak.records import NodeFacts, Plan, TrialRecord
from tokenpeak.results.node_screening import NodeScreening, screening_of
from tokenpeak.search.history import Finished, Proposal, Wait
from tokenpeak.spec.sweep import SweepSpec


class ScreeningQueue:
    """The node screening of one plan; not safe by itself, as the trial queue that holds it is.

    `there` are the nodes that the sweep works on now. Each of them makes its launches, and the search begins when all
    have: until then a node that is done waits, and serves production.
    """

    def __init__(self, spec: SweepSpec, plan: Plan, facts: Sequence[NodeFacts], there: Collection[str]) -> None:
        self._spec = spec
        self._facts = [node for node in facts if node.node in plan.nodes]
        self._awaited = set(screened_nodes(spec, plan, there))
        self._launches = spec.node_screening.launches if spec.node_screening is not False else 0
        self._config = screening_config(spec, plan) if self._awaited else None
        self._records: list[TrialRecord] = []
        self._found: NodeScreening | None = None

    @property
    def remaining(self) -> int:
        """How many launches are still to come."""
        return sum(self._missing(node) for node in self._awaited)

    @property
    def ended(self) -> int:
        """How many launches have ended."""
        return len(self._records)

    @property
    def found(self) -> NodeScreening | None:
        """The verdicts on the nodes; None before the last launch, and where nothing is compared."""
        if self._found is None and self._records and not self.remaining:
            self._found = screening_of(self._records, self._facts, self._spec)
        return self._found

    def claim(self, node: str) -> Proposal | Wait | Finished | None:
        """The node's next launch; a wait for the others; the end for a node that is excluded; None: search on."""
        if self._config is not None and node in self._awaited and self._missing(node):
            number = self._launches - self._missing(node)
            return Proposal(
                config_id=self._config.config.config_id,
                replicate=number,
                reason=f"node screening, launch {number + 1} of {self._launches}",
                node_screening=True,
            )
        if self.remaining:
            return Wait(reason="other nodes are still being compared", gives_back=True)
        if self._spec.node_screening is not False and self._spec.node_screening.outliers == "exclude":
            for outlier in self.found.outliers if self.found is not None else ():
                if outlier.node == node:
                    return Finished(reason=f"{outlier.sentence}; no further trial is made there")
        return None

    def enter(self, record: TrialRecord) -> None:
        """A launch has ended; one that was interrupted is made again."""
        if record.status != "interrupted":
            self._records.append(record)
            self._found = None

    def leave(self, node: str) -> None:
        """The node makes no trials any more: nobody waits for it."""
        self._awaited.discard(node)

    def _missing(self, node: str) -> int:
        return max(0, self._launches - sum(record.node == node for record in self._records))


class ComparedNodes:
    """The outliers of all hardware in words, as their verdicts come in; each is said at once."""

    def __init__(self, spec: SweepSpec, say: Callable[[str], None]) -> None:
        self._is_excluded = spec.node_screening is not False and spec.node_screening.outliers == "exclude"
        self._say = say
        self.outliers: list[str] = []

    def take(self, found: NodeScreening) -> None:
        """Say a line for each node of a group that is not usual, and what the group can show."""
        then = "no further trial is made there" if self._is_excluded else "it is kept, as the sweep says"
        outliers = [f"{node.sentence}; {then}." for node in found.outliers]
        others = [node.sentence for node in found.nodes if node.verdict != "usual" and not node.is_outlier]
        for line in outliers:
            self._say(f"OUTLIER {line}")
        for line in (*others, found.power_words):
            self._say(f"Node screening: {line}")
        self.outliers += outliers
