"""What a recorded trial says to the search."""

import math

import pytest

from archive_factory import node_facts, plan_of, sweep_spec, trial_record
from tokenpeak.records import Reason, TrialRecord, Verdict
from tokenpeak.search.history import BADLY_MEASURED, Outcome, history_of, outcome_of, without_node_effects


@pytest.mark.parametrize(
    ("code", "cause"),
    [("late_dispatch", BADLY_MEASURED), ("segments_lost", BADLY_MEASURED), ("overloaded", None), ("preemptions", None)],
)
def test_an_invalid_run_is_no_failed_config(code: str, cause: str | None) -> None:
    """A run that the client or the network spoilt says nothing about its config; the engine's own limits do."""
    trial, _ = trial_record(sweep_spec())
    verdict = Verdict(status="invalid", reasons=(Reason(code=code, text="…"),))
    spoilt = trial.model_copy(
        update={"runs": tuple(run.model_copy(update={"verdict": verdict}) for run in trial.runs), "failure": None}
    )
    outcome = outcome_of(spoilt.model_copy(update={"status": "ok"}), sweep_spec())

    assert (None, cause) == (outcome.value, outcome.failure_cause)
    assert outcome.about_the_config == (cause is None)
    assert not outcome.feasible


def launch(config_id: str, node: str, value: float) -> Outcome:
    """A launch that went well."""
    return Outcome(config_id=config_id, replicate=0, status="ok", value=value, node=node)


def values(outcomes: list[Outcome]) -> list[float]:
    """What the search sees."""
    return [outcome.value or 0.0 for outcome in outcomes]


def test_a_screening_corrects_what_slow_nodes_measure() -> None:
    """Configs launched once are compared as on the mean of the nodes, by launches of one config on each node."""
    screened = [(node, "base", 100 * speed * noise) for node, speed in SPEEDS.items() for noise in (0.998, 1.002)]
    history = [launch("good", "slow", 110 * 0.92), launch("bad", "one", 104.0), launch("bad too", "two", 103.0)]
    found = values(without_node_effects(history, screened))
    centre = math.exp(sum(math.log(speed) for speed in SPEEDS.values()) / len(SPEEDS))

    assert [101.2, 104.0, 103.0] == pytest.approx(values(history))
    assert [110 * centre, 104 * centre, 103 * centre] == pytest.approx(found, rel=0.005)


def test_later_launches_change_nothing_of_earlier_ones() -> None:
    """What the search decided by a trial stays so: its value depends on itself and on the screening."""
    screened = [(node, "base", 100 * speed * noise) for node, speed in SPEEDS.items() for noise in (0.998, 1.002)]
    early = [launch("base", node, 100 * SPEEDS[node]) for node in SPEEDS]
    late = [launch("base", node, 120.0 + number) for number, node in enumerate(SPEEDS)]

    for known in (screened, []):
        assert values(without_node_effects(early, known)) == values(without_node_effects([*early, *late], known))[:4]


def test_launches_of_one_node_are_as_they_were_measured() -> None:
    """To the last digit."""
    history = [launch("a", "one", 100.1), launch("a", "one", 99.7), launch("b", "one", 90.3)]

    assert history == without_node_effects(history, [("one", "a", 99.0), ("one", "a", 98.0)])


def test_recorded_screenings_are_read_with_the_history() -> None:
    """The history holds the trials of the search alone, without what the screening shows of their nodes."""
    spec = sweep_spec()
    nodes = [node_facts(name, "NVIDIA L4") for name in SPEEDS]
    plan = plan_of(spec, nodes[0])
    trials: list[TrialRecord] = []
    for number, node in enumerate([*nodes, *nodes, nodes[-1]]):
        record, _ = trial_record(spec, node=node, planned=plan.feasible[0], replicate=number, number=number)
        runs = tuple(
            run.model_copy(
                update={
                    "summary": run.summary.model_copy(update={"output_tok_per_s": 100 * SPEEDS[node.node] + number / 9})
                }
            )
            for run in record.runs
        )
        trials.append(record.model_copy(update={"runs": runs, "node_screening": number < 2 * len(nodes)}))
    (found,) = history_of(trials, spec, nodes[0].hardware)

    assert "slow" == found.node
    assert found.value == pytest.approx(100 * math.exp(sum(map(math.log, SPEEDS.values())) / len(SPEEDS)), rel=0.015)


SPEEDS = {"one": 1.0, "two": 1.0, "three": 1.0, "slow": 0.92}
