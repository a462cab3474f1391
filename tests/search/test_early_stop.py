"""A trial's other runs are left out only where its config is far behind, and never of one that must be whole."""

from landscape_factory import landscape, plan_of

from tokenpeak.search.adaptive import early_stop_threshold
from tokenpeak.search.history import Outcome, Proposal
from tokenpeak.search.replay import Landscape
from tokenpeak.search.searches import make_strategy
from tokenpeak.spec.sweep import SearchSpec


def launches(**values: list[float]) -> list[Outcome]:
    """The outcomes of these configs' launches."""
    return [
        Outcome(config_id=config, replicate=replicate, status="ok", value=value)
        for config, found in values.items()
        for replicate, value in enumerate(found)
    ]


def test_far_behind_is_less_where_launches_are_seen_to_vary_little() -> None:
    """Nothing to compare with: no threshold. One launch: about a quarter behind. Ten steady pairs: about a seventh."""
    steady = {f"c{number}": [99.8, 100.2] for number in range(10)}
    one, many = (
        early_stop_threshold(launches(a=[100]), margin=0.02, sign=1),
        early_stop_threshold(launches(**steady), margin=0.02, sign=1),
    )

    assert early_stop_threshold([], margin=0.02, sign=1) is None
    assert one is not None and 72 < one < 78
    assert many is not None and 82 < many < 88


def test_configs_that_broke_the_slo_are_no_best() -> None:
    """A fast config that may not be chosen stops no other early."""
    broken = Outcome(config_id="fast", replicate=0, status="ok", value=900.0, slo_met=False)

    assert early_stop_threshold(launches(a=[100]), margin=0.02, sign=1) == early_stop_threshold(
        [broken, *launches(a=[100])], margin=0.02, sign=1
    )


def proposals(known: Landscape, search: SearchSpec) -> list[Proposal]:
    """Every trial of a sweep on the landscape."""
    strategy = make_strategy(search, known.plan)
    history: list[Outcome] = []
    made: list[Proposal] = []
    while isinstance(step := strategy.propose(history, ()), Proposal):
        value = known.launches[step.config_id][step.replicate]
        history.append(Outcome(config_id=step.config_id, replicate=step.replicate, status="ok", value=value))
        made.append(step)
    return made


def test_baselines_anchors_second_launches_and_finalists_are_whole() -> None:
    """Only the first launch of a config that the search chose has a threshold, once there is a best."""
    known = landscape("A100", 1)
    name = known.plan.feasible[3].config.name
    search = SearchSpec(strategy="adaptive", trials=10, baseline=(name,), anchor_every=4)
    made = proposals(known, search)
    first = [step.replicate == 0 and not step.reason.startswith(("baseline", "anchor")) for step in made]

    assert first == [step.early_stop_threshold is not None for step in made]
    assert 5 < sum(first) < len(made)


def test_a_grid_leaves_nothing_out() -> None:
    """It makes every run of every trial."""
    grid = make_strategy(SearchSpec(), plan_of("A100")).propose(launches(a=[100]), ())

    assert isinstance(grid, Proposal) and grid.early_stop_threshold is None
