from tokenpeak import metrics
from tokenpeak.records import Distribution, Energy, RunSummary
from tokenpeak.spec.slo import Slo


def test_distributions_of_a_run_are_metrics() -> None:
    """Each distribution that a run stores is a metric, and each metric with a distribution is stored."""
    stored = {name for name, field in RunSummary.model_fields.items() if field.annotation is Distribution}

    assert {metric.name for metric in metrics.METRICS if metric.distribution} == stored


def test_rates_of_a_run_are_metrics() -> None:
    """Each rate and energy that a run stores has its unit and formula in the table."""
    rates = {name for name in RunSummary.model_fields if name.endswith("_per_s") and not name.startswith("windowed")}
    rates |= {name for name in Energy.model_fields if "_per_" in name}

    assert set() == rates - set(metrics.BY_NAME)


def test_limits_of_an_slo_are_metrics() -> None:
    """Each limit that an SLO can name is a percentile of a metric that a run stores."""
    limits = Slo.model_validate(dict.fromkeys(Slo.model_fields, 1)).limits()

    assert set() == {metric for metric, _, _ in limits} - set(RunSummary.model_fields)
    assert set() == {percentile for _, percentile, _ in limits} - set(Distribution.model_fields)
