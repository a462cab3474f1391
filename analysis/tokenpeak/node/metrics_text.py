"""Metrics page of production in Prometheus' text format: samples by name, with their labels."""

from __future__ import annotations

import math
import re
from typing import Dict, List, Tuple

from tokenpeak.node import serving
from tokenpeak.node.production.identity import Check

PAGE_TIMEOUT_S = 5.0
VALUE_LIMIT = 1e15
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')

Labels = Dict[str, str]
Samples = Dict[str, List[Tuple[Labels, float]]]


def parse(text: str) -> Samples:
    """Samples by name; a line that is none, or whose value is no count, is left out."""
    found: Samples = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if sample is None:
            continue
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if math.isfinite(value) and 0 <= value <= VALUE_LIMIT:
            found.setdefault(sample[1], []).append((dict(_LABEL.findall(sample[2] or "")), value))
    return found


def total(samples: Samples, name: str) -> float | None:
    """The sum over all labels; None where the page has no such metric."""
    found = samples.get(name)
    return sum(value for _, value in found) if found else None


def read_page(url: str, check: Check | None = None, ca_file: str | None = None) -> Samples | None:
    """The samples of `url`/metrics now; None where there is no such page."""
    answer = serving.request(f"{url}/metrics", timeout_s=PAGE_TIMEOUT_S, check=check, ca_file=ca_file)
    return parse(answer.text) if answer.status == 200 else None
