"""Which patterns each kind of text is read apart by."""

from judge import card, energy, load, overview, ranking, trials
from judge.text import Patterns, fixed

SENTENCES: Patterns = [
    overview.headline, overview.unchanged, overview.unproven, overview.nearest, overview.noise, overview.not_shown,
    overview.faster, overview.random_weights, overview.broken, overview.tie,
    overview.holdout, overview.elsewhere, ranking.standing, ranking.span, load.fastest, load.held_rate, load.tail,
    load.no_curve, energy.least_energy, energy.estimated_energy,
    trials.launches, trials.published, trials.early, trials.drift, trials.checked, trials.hardware, trials.formats,
    fixed("No run that may be ranked has both a throughput and the speed of its requests."),
    overview.caution,
]  # fmt: skip
KINDS: dict[str, Patterns] = {
    "sentence": SENTENCES,
    "tile": [card.tile],
}
