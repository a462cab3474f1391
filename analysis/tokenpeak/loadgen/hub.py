"""Datasets of the hub, read by the `datasets` library where it is installed, with its cache, token and offline mode."""

import importlib
from typing import Any

from tokenpeak.errors import WorkloadError

INSTALL = "pip install 'tokenpeak[hub]'"


def hub_rows(name: str, split: str, most: int) -> list[dict[str, Any]]:
    """The rows of a split of a dataset, or of a folder in its form; WorkloadError where there are none to be had."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise WorkloadError(
            f"The dataset {name} is read by the datasets library, which is not installed. Run {INSTALL}, or download "
            "the dataset and give its files as paths."
        ) from error
    try:
        loaded = datasets.load_dataset(name, split=split)
    except Exception as error:  # the library raises what its parts raise: of the network, of a file system, of a parser
        reason = " ".join(str(error).split())[:300]
        raise WorkloadError(f"The dataset {name}, split {split!r}, cannot be read: {reason}") from error
    if len(loaded) > most:
        raise WorkloadError(
            f"The dataset {name} has {len(loaded):,} rows in {split!r}; at most {most:,} are read. Take a part, such "
            f"as split: '{split}[:10%]'."
        )
    return [dict(row) for row in loaded]
