"""Processes of the load client: how many a load takes, and how many a machine bears."""

from collections.abc import Iterable

from tokenpeak.spec.workload import LoadLevel, StagedLoad

STREAMS_PER_PROCESS = 1024


def processes_of_share(streams: int, hosts: int) -> int:
    """How many processes a machine needs for its share of so many requests in flight, divided among so many hosts."""
    share = -(-streams // hosts)
    return max(1, -(-share // STREAMS_PER_PROCESS))


def processes_borne(cores: int) -> int:
    """How many processes a machine bears: one a core, but for the core that everything else there has."""
    return max(1, cores - 1)


def most_streams(levels: Iterable[LoadLevel]) -> int:
    """The most requests in flight that any of the levels asks for."""
    return max(map(_streams, levels))


def _streams(level: LoadLevel) -> int:
    """The most requests in flight that a level asks for; 1 when it does not say."""
    if isinstance(level, StagedLoad):
        return max(stage.concurrency or 1 for stage in level.stages)
    return getattr(level, "concurrency", None) or getattr(level, "max_concurrency", None) or 1
