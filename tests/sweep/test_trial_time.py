"""Whose time a trial's seconds were."""

from tokenpeak.node.protocol.answers import LaunchAnswer
from tokenpeak.records import Phase, Series
from tokenpeak.results.trial_time import clock_offset_s, fill_gaps, merged, node_phases


def test_unclaimed_time_is_named_after_the_step_that_ran() -> None:
    """The load client's own start and end are distinguished from Ansible's."""
    load = Phase(name="load", kind="load", started_s=3.0, duration_s=5.0)
    filled = fill_gaps([load], 10.0, [("load", 1.0, 9.0)])

    expected = [("ansible", 1.0), ("load client", 2.0), ("load", 5.0), ("load client", 1.0), ("ansible", 1.0)]
    assert expected == [(phase.name, phase.duration_s) for phase in filled]


def test_node_phases_are_put_on_the_trials_clock() -> None:
    """A node whose clock is a minute ahead has its phases where they happened here."""
    started = Phase(name="engine_start", kind="engine_start", started_s=1.0, duration_s=9.0)
    answer = LaunchAnswer(started_at_unix_s=1065.0, phases=(started,))
    offset_s = clock_offset_s(answer, 1015.0, is_local=False)
    (phase,) = node_phases(answer, offset_s=offset_s, trial_started_unix_s=1000.0)

    assert (60.0, 6.0) == (offset_s, phase.started_s)


def test_merged_series_keep_every_sample() -> None:
    """Two samplers' columns stand on one clock, with None where one of them did not sample."""
    first = Series(t_s=(0.0, 1.0), columns={"a": (1.0, 2.0)})
    second = Series(t_s=(0.5, 1.0), columns={"b": (3.0, 4.0)})

    expected = Series(t_s=(0.0, 0.5, 1.0), columns={"a": (1.0, None, 2.0), "b": (None, 3.0, 4.0)})
    assert expected == merged(first, second)
