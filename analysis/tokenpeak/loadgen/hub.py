"""Datasets of the hub, read by the `datasets` library where it is installed, with its cache, token and offline mode."""

import importlib
from importlib.util import find_spec
from typing import Any

from tokenpeak.errors import WorkloadError

INSTALL = "pip install 'tokenpeak[hub]'"


def require_library(name: str) -> None:
    """Raise WorkloadError where the library that reads the dataset is not installed."""
    if find_spec("datasets") is None:
        raise WorkloadError(
            f"The dataset {name} is read by the datasets library, which is not installed. Run {INSTALL}, or download "
            "the dataset and give its files as paths."
        )


def hub_rows(name: str, subset: str | None, split: str, most: int) -> list[dict[str, Any]]:
    """The rows of a split of a dataset, or of a folder in its form; WorkloadError where there are none to be had."""
    require_library(name)
    datasets = importlib.import_module("datasets")
    place = f"The dataset {name}" + (f", subset {subset!r}" if subset else "")
    try:
        loaded = datasets.load_dataset(name, subset, split=split)
    except Exception as error:  # the library raises what its parts raise: of the network, of a file system, of a parser
        reason = " ".join(str(error).split())[:300]
        raise WorkloadError(f"{place}, split {split!r}, cannot be read: {reason}") from error
    if len(loaded) > most:
        raise WorkloadError(
            f"{place} has {len(loaded):,} rows in {split!r}; at most {most:,} are read. Take a part, such "
            f"as split: '{split}[:10%]'."
        )
    return [dict(row) for row in loaded]
