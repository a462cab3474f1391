"""A search of the tree for a term of the field leads to the module that does it."""

import ast

import pytest

from tokenpeak import paths

PACKAGE = paths.ROOT / "analysis" / "tokenpeak"

TERMS = {
    "acquisition": "search/posterior.py",
    "carbon intensity": "report/energy.py",
    "confidence interval": "ranking/intervals.py",
    "coordinated omission": "results/run_summary.py",
    "downtime budget": "sweep/downtime_budget.py",
    "early stop": "search/adaptive.py",
    "feasibility": "plan/rules.py",
    "gaussian process": "search/posterior.py",
    "geometric mean": "ranking/rank.py",
    "goodput": "results/run_summary.py",
    "heartbeat": "node/guard/lease.py",
    "host key": "sweep/ansible/result.py",
    "interaction": "ranking/effects.py",
    "main effect": "ranking/effects.py",
    "memory plan": "predict/memory_plan.py",
    "open loop": "loadgen/arrivals.py",
    "pareto front": "ranking/objective.py",
    "performance model": "predict/physics.py",
    "poisson": "loadgen/arrivals.py",
    "posterior": "search/posterior.py",
    "preemption": "loadgen/http/metrics_page.py",
    "prefix cache": "loadgen/http/metrics_page.py",
    "quantization": "predict/quantization.py",
    "randomized block": "search/finals.py",
    "roofline": "predict/physics.py",
    "speculative decoding": "vllm/renames.py",
    "verdict": "results/verdict.py",
    "watchdog": "node/guard/guard.py",
}


def headings() -> dict[str, str]:
    """The first paragraph of each module's docstring, by the module's path in the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        heading = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n\n")[0]
        found[path.relative_to(PACKAGE).as_posix()] = heading.lower()
    return found


HEADINGS = headings()


@pytest.mark.parametrize(("term", "module"), TERMS.items(), ids=list(TERMS))
def test_term_leads_to_its_module(term: str, module: str) -> None:
    """The module begins with the term, and few others name it in their docstrings."""
    found = [name for name, heading in HEADINGS.items() if term in heading]

    assert module in found
    assert len(found) <= 6
