"""Load host scheduler: which load hosts offer a trial's load, so that no two trials share a core of one.

A trial's load takes so many processes of each of its hosts, and a host bears one a core. All trials of a sweep take
equally many hosts, so that they compare. No more nodes work at once than the hosts have room for, so that hardly a
trial waits, with production down, for another's to end.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from tokenpeak.loadgen.processes import most_streams, processes_of_share
from tokenpeak.loadgen.remote_worker_pool import LoadHost
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.load_hosts import PreparedHost
from tokenpeak.sweep.trial_request import load_runs

_POLL_S = 0.5


class LoadHostScheduler:
    """Gives load hosts to trials of at most `streams` requests in flight, of which `at_once` would run together.

    A trial takes the fewest hosts that bear its load, or more where some would else be idle. Without hosts this machine
    offers the load, and nothing is scheduled.
    """

    def __init__(self, hosts: Sequence[PreparedHost], streams: int, at_once: int) -> None:
        self._hosts = tuple(hosts)
        self._at_once = at_once
        self._free = {each.host.name: each.processes for each in hosts}
        self._changed = threading.Condition()
        self.hosts_per_trial = _hosts_per_trial(self._hosts, streams, at_once)
        """0: this machine offers the load."""
        self._share = processes_of_share(streams, max(1, self.hosts_per_trial))

    @property
    def trials_at_once(self) -> int:
        """How many of the trials that would run together do: those that the hosts have room for."""
        borne = [each.processes // self._taken(each) for each in self._hosts]
        trials = 1
        while trials < self._at_once and (
            sum(min(most, trials + 1) for most in borne) >= (trials + 1) * self.hosts_per_trial
        ):
            trials += 1
        return trials

    @contextlib.contextmanager
    def held(self, is_over: Callable[[], bool]) -> Iterator[tuple[LoadHost, ...]]:
        """A trial's hosts, in the inventory's order; their room is the trial's own until the block ends.

        Waits until enough have room, or until `is_over` answers True.
        """
        with self._changed:
            while sum(map(self._has_room, self._hosts)) < self.hosts_per_trial and not is_over():
                self._changed.wait(_POLL_S)
            roomiest = sorted(self._hosts, key=self._by_room)[: self.hosts_per_trial]
            chosen = [each for each in self._hosts if each in roomiest]
            for each in chosen:
                self._free[each.host.name] -= self._taken(each)
        try:
            yield tuple(each.host for each in chosen)
        finally:
            with self._changed:
                for each in chosen:
                    self._free[each.host.name] += self._taken(each)
                self._changed.notify_all()

    def _by_room(self, host: PreparedHost) -> tuple[bool, int]:
        return not self._has_room(host), -self._free[host.host.name]

    def _has_room(self, host: PreparedHost) -> bool:
        return self._free[host.host.name] >= self._taken(host)

    def _taken(self, host: PreparedHost) -> int:
        """How many processes a trial takes there: what its share needs, as far as the host bears it."""
        return min(self._share, host.processes)


def scheduler(hosts: Sequence[PreparedHost], spec: SweepSpec, at_once: int) -> LoadHostScheduler:
    """The scheduler of a sweep of which so many nodes would work at once."""
    return LoadHostScheduler(hosts, most_streams(run.level for run in load_runs(spec)), at_once)


def _hosts_per_trial(hosts: Sequence[PreparedHost], streams: int, at_once: int) -> int:
    if not hosts:
        return 0
    least = min(each.processes for each in hosts)
    enough = (count for count in range(1, len(hosts)) if processes_of_share(streams, count) <= least)
    return max(next(enough, len(hosts)), len(hosts) // max(1, at_once))
