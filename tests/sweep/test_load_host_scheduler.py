"""Load hosts are given out so that what trials take of one together never exceeds what it bears."""

import math
import random
import threading
import time
from collections import Counter

import pytest

from tokenpeak.loadgen.workers.remote import LoadHost
from tokenpeak.sweep.trial.load_hosts import LoadHostScheduler, PreparedHost

PER_PROCESS = 1024
"""Streams, as the documentation says."""


def scheduler(processes: list[int], streams: int, at_once: int) -> LoadHostScheduler:
    hosts = [
        PreparedHost(host=LoadHost(name=f"load-{number}", argv=("true",)), processes=borne)
        for number, borne in enumerate(processes)
    ]
    return LoadHostScheduler(hosts, streams, at_once)


@pytest.mark.parametrize(
    ("processes", "streams", "at_once", "per_trial", "together"),
    [
        ([], 64, 8, 0, 8),
        ([15, 15], 64, 2, 1, 2),
        ([15, 15], 64, 200, 1, 30),
        ([3, 3], 2 * PER_PROCESS, 200, 1, 2),
        ([3, 3], 100 * PER_PROCESS, 200, 2, 1),
    ],
)
def test_how_many_together(processes: list[int], streams: int, at_once: int, per_trial: int, together: int) -> None:
    """As few hosts as bear the load, all of them for a lone trial, and no more trials than they have room for."""
    made = scheduler(processes, streams, at_once)

    assert (per_trial, together) == (made.hosts_per_trial, made.trials_at_once)


@pytest.mark.parametrize(("processes", "streams"), [([2, 2, 2], 64), ([4, 3, 2], 3 * PER_PROCESS), ([5, 1, 1], 64)])
def test_no_host_bears_more_than_it_can(processes: list[int], streams: int) -> None:
    """Of thirty trials in as many threads as may work at once, none waits for ever, and no host is overcommitted."""
    made = scheduler(processes, streams, 30)
    share = math.ceil(math.ceil(streams / made.hosts_per_trial) / PER_PROCESS)
    borne = {f"load-{number}": borne for number, borne in enumerate(processes)}
    used: Counter[str] = Counter()
    most: Counter[str] = Counter()
    sizes: list[int] = []
    counting = threading.Lock()

    def trial(seed: int) -> None:
        with made.held(lambda: False) as hosts:
            with counting:
                sizes.append(len(hosts))
                for host in hosts:
                    used[host.name] += min(share, borne[host.name])
                    most[host.name] = max(most[host.name], used[host.name])
            time.sleep(random.Random(seed).uniform(0.001, 0.02))
            with counting:
                for host in hosts:
                    used[host.name] -= min(share, borne[host.name])

    threads = [threading.Thread(target=trial, args=(seed,)) for seed in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert [made.hosts_per_trial] * 30 == sizes
    assert all(most[name] <= borne[name] for name in borne), most


def test_wait_ends_with_the_sweep() -> None:
    """A trial that waits for room goes on when the sweep is ended, rather than hang."""
    made = scheduler([1], 64, 2)
    is_over = threading.Event()
    began = time.monotonic()
    with made.held(lambda: False):
        threading.Timer(0.2, is_over.set).start()
        with made.held(is_over.is_set) as hosts:
            waited_s = time.monotonic() - began

    assert 1 == len(hosts)
    assert 0.15 < waited_s < 5
