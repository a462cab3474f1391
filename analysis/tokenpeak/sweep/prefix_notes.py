"""Notes on a sweep whose axis is about prefix caching, where its workload has nothing that such a cache could serve."""

from collections.abc import Iterator
from pathlib import Path

from tokenpeak import paths
from tokenpeak.errors import LoadError
from tokenpeak.loadgen.chats import user_turns
from tokenpeak.loadgen.datasets import read_samples
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.spec.workload import DatasetWorkload

FLAGS = ("enable_prefix_caching", "prefix_caching_hash_algo", "kv_offloading_size", "kv_transfer_config")
"""Flags that change what a cache of prompts' beginnings can serve."""


def prefix_notes(spec: SweepSpec) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """What such an axis cannot show, and the place of the workload in the spec; files that cannot be read have none."""
    axes = [
        axis
        for axis, alternatives in spec.axes.items()
        if len(alternatives) > 1
        and any(name.replace("-", "_").removeprefix("no_") in FLAGS for each in alternatives for name in each.flags)
    ]
    for index, workload in enumerate(plan.workload for plan in spec.workloads if axes):
        if not isinstance(workload, DatasetWorkload) or workload.turn_by_turn or not workload.files:
            continue
        files = tuple(str(paths.HOME / Path(file).expanduser()) for file in workload.files)
        try:
            samples = read_samples(workload.model_copy(update={"path": None, "paths": files, "hub": ()}))
        except LoadError:
            continue
        if several := sum(user_turns(sample) > 1 for sample in samples):
            yield (
                f"{several} of the {len(samples)} chats of {workload.name!r} have several turns, and each is asked as "
                f"one request: axis {axes[0]} cannot show what a cache saves between the turns of a chat. "
                "Give the workload turn_by_turn: true",
                ("workloads", index, "workload", "path" if workload.path is not None else "paths"),
            )
