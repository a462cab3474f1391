"""The bake's verdict, judged by a queue that shares no code with it: equal configs pass, slower ones do not."""

import heapq
import random
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache

import pytest

from tokenpeak.node.protocol.parts import Series
from tokenpeak.results.bake import Observed, judge

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 2.0, 5.0, 10.0)
MARGIN = 0.1


class Server:
    """An engine with slots whose tokens slow down as it fills, under Poisson or closed-loop clients; seconds as given.

    Requests queue, so that their times depend on one another.
    """

    def __init__(self, seed: int, *, slots: int = 8, tpot_s: float = 0.02, slower: float = 1.0) -> None:
        self.random = random.Random(seed)
        self.slots, self.tpot_s, self.slower = slots, tpot_s, slower
        self.columns: dict[str, float] = dict.fromkeys(
            ["ttft_count", "ttft_sum", "tpot_count", "tpot_sum", "prompt_tokens", "generation_tokens", "finished:stop"],
            0.0,
        )
        self.at_least = {each: [f"{each}_le:{bound}" for bound in (*BOUNDS, float("inf"))] for each in ("ttft", "tpot")}
        self.columns |= dict.fromkeys((name for names in self.at_least.values() for name in names), 0.0)

    def ends(self, rate_per_s: float | None, clients: int, duration_s: float) -> Iterator[tuple[float, float, float]]:
        """Each request's end, TTFT and TPOT, in the order in which they end."""
        busy: list[float] = []
        found = []
        if rate_per_s is None:
            due = [(self.random.random(), client) for client in range(clients)]
            heapq.heapify(due)
        else:
            at, due = 0.0, []
            while at < duration_s:
                at += self.random.expovariate(rate_per_s)
                due.append((at, 0))
        while due:
            arrived, client = heapq.heappop(due)
            if arrived > duration_s:
                break
            while busy and busy[0] <= arrived:
                heapq.heappop(busy)
            begins = arrived if len(busy) < self.slots else max(arrived, busy[0])
            if len(busy) >= self.slots:
                heapq.heappop(busy)
            load = 1 + 0.05 * len(busy)
            noise = self.random.lognormvariate(0, 0.1)
            prefill_s = 0.05 * self.slower * noise
            tpot_s = self.tpot_s * self.slower * load * self.random.lognormvariate(0, 0.05)
            tokens = self.random.randint(20, 60)
            end = begins + prefill_s + tpot_s * tokens
            heapq.heappush(busy, end)
            found.append((end, begins - arrived + prefill_s, tpot_s))
            if rate_per_s is None:
                heapq.heappush(due, (end + 0.05, client))
        yield from sorted(found)

    def window(
        self, *, rate_per_s: float | None = None, clients: int = 6, duration_s: float = 60.0, period_s: float = 2.0
    ) -> Observed:
        """Readings of its counts over a while, after a start that is left out."""
        settle_s = 10.0
        rows, at = [], []
        ends = list(self.ends(rate_per_s, clients, settle_s + duration_s))
        looks = [settle_s + k * period_s for k in range(int(duration_s / period_s) + 1)]
        place = 0
        for look in looks:
            while place < len(ends) and ends[place][0] <= look:
                self._count(*ends[place][1:])
                place += 1
            rows.append(dict(self.columns))
            at.append(look)
        columns = {name: tuple(row[name] for row in rows) for name in rows[0]}
        return Observed(readings=Series(t_s=tuple(at), columns=columns))

    def _count(self, ttft_s: float, tpot_s: float) -> None:
        for metric, value in (("ttft", ttft_s), ("tpot", tpot_s)):
            self.columns[f"{metric}_count"] += 1
            self.columns[f"{metric}_sum"] += value
            for name in self.at_least[metric][bisect_left(BOUNDS, value) :]:
                self.columns[name] += 1
        self.columns["prompt_tokens"] += 100
        self.columns["generation_tokens"] += 40
        self.columns["finished:stop"] += 1


LOADS: dict[str, dict[str, float]] = {
    "closed": {"clients": 6},
    "crowded": {"clients": 12},
    "open": {"rate_per_s": 3.0, "duration_s": 120.0},
}


@cache
def usual(load: str, seed: int) -> Observed:
    """A window of production as it was, under one of these loads."""
    return Server(seed).window(**LOADS[load])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "load", ["open", *(pytest.param(each, marks=pytest.mark.e2e) for each in ("closed", "crowded"))]
)
def test_equal_configs_pass(load: str) -> None:
    """Of 100 bakes of an equal config none is called slower or failing, and nine in ten are decided at once."""
    found = [judge(usual(load, seed), usual(load, seed + 10_000), margin=MARGIN).status for seed in range(100)]

    assert {"passed", "not_judged"} >= {*found}
    assert found.count("passed") >= 90, found.count("passed")


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("slower", [1.3, 2.0])
def test_slower_configs_do_not_pass(load: str, slower: float) -> None:
    """Of 40 bakes of a config that is 1.3 or 2 times slower under load none passes."""
    found = [
        judge(
            usual(load, seed),
            Server(seed + 10_000, slower=slower).window(**LOADS[load]),  # type: ignore[arg-type]
            margin=MARGIN,
        ).status
        for seed in range(40)
    ]

    assert "passed" not in found
    assert found.count("slower") >= 38, found.count("slower")


@pytest.mark.parametrize(("before", "after", "status"), [(3.0, 7.0, "not_judged"), (7.0, 3.0, "not_judged")])
def test_other_traffic(before: float, after: float, status: str) -> None:
    """Twice or half of the requests are other traffic: neither is the config's doing."""
    bake = judge(Server(1).window(rate_per_s=before), Server(2).window(rate_per_s=after), margin=MARGIN)

    assert status == bake.status, bake.reason
    assert "traffic is another" in bake.reason


def test_failing_requests() -> None:
    """Requests that fail where none did are seen, by the engine's count and by the test load's."""
    before = Server(1).window()
    counted = Server(2).window()
    errors = tuple(float(k) for k in range(len(counted.readings.t_s)))
    counted = Observed(readings=Series(counted.readings.t_s, {**counted.readings.columns, "finished:error": errors}))
    seen = Server(3).window()
    seen = Observed(readings=seen.readings, load_sent=100, load_failed=10)
    one = Observed(readings=Server(4).window().readings, load_sent=100, load_failed=1)

    assert "failing" == judge(before, counted, margin=MARGIN).status
    assert "failing" == judge(before, seen, margin=MARGIN).status
    assert "passed" == judge(before, one, margin=MARGIN).status, "one of hundreds may be chance"


def test_production_that_ends_or_starts_again() -> None:
    """What ended or began to count anew during the bake is failing, however fast it was."""
    before, after = Server(1).window(), Server(2).window()
    half = len(after.readings.t_s) // 2
    columns = {
        name: (*values[:half], *((value or 0.0) - (values[half] or 0.0) for value in values[half:]))
        for name, values in after.readings.columns.items()
    }

    assert "failing" == judge(before, Observed(readings=after.readings, ended="It ended."), margin=MARGIN).status
    restarted = judge(before, Observed(readings=Series(after.readings.t_s, columns)), margin=MARGIN)
    assert ("failing", True) == (restarted.status, "started again" in restarted.reason)
    assert "failing" == judge(before, Observed(readings=Series(), ended="Gone."), margin=MARGIN).status
