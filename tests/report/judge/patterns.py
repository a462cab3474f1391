"""Which patterns each kind of text is read apart by."""

import re

from judge import card, energy_words, interactions, load, overview, ranking, trials
from judge.text import LEVEL, Patterns, fixed

SENTENCES: Patterns = [
    overview.headline, overview.precision, overview.random_weights, overview.broken, overview.alone, overview.tie,
    overview.holdout, overview.elsewhere, ranking.standing, ranking.span, load.fastest, load.tried_rate, load.tail,
    load.no_curve, energy_words.least_energy,
    interactions.effect_words, interactions.heatmap_legend,
    trials.launches, trials.published, trials.early, trials.drift, trials.checked, trials.hardware, trials.formats,
    fixed("No run that may be ranked has both a throughput and the speed of its requests."),
    overview.simulated, overview.caution,
]  # fmt: skip
INTERVALS = (
    r"(?:(?:One launch each|One figure a config, launches unknown), so points have no interval|Means over launches)\."
)
CAPTIONS: Patterns = [
    (re.compile(
        r"Each point is a config at a load level of [\w-]+: up and to the right is better\.(?: The thin "
        r"line joins those that "
        rf"nothing tried beats in both\.)? {INTERVALS}"
    ), lambda site, found: iter(())),
    (re.compile(
        rf"Each config's first launch at {LEVEL}\. A queue that grows to the end: the load is more "
        rf"than the engine serves\."
    ), lambda site, found: iter(())),
    fixed(
        "On each card a dot is a config, better to the right; the line is the baseline, "
        "the diamond the recommended config."
    ),
    ranking.ranking_caption, load.quantile_caption, energy_words.energy_caption,
    interactions.effects_caption, trials.strips, load.curve_caption, interactions.heatmap_caption,
]  # fmt: skip
STEPS: Patterns = [
    fixed("Measure its answers before it serves anybody: ⟦tokenpeak quality record --help⟧."),
    fixed("Confirm the gain: ⟦search: {replicates: 3}⟧ launches each config three times."),
    fixed("Confirm the ranking: ⟦search: {replicates: 3}⟧ launches each config three times."),
    fixed("See what else ties, in the ranking."),
    fixed("Find its highest rate within an SLO: ⟦make sweep SWEEP=rates⟧."),
    fixed("Say what a node costs: ⟦tokenpeak report --param price_per_hour=2.5⟧."),
    overview.edge,
]
KINDS: dict[str, Patterns] = {
    "sentence": SENTENCES,
    "caption": CAPTIONS,
    "tile": [card.tile],
    "fact": [overview.facts],
    "step": STEPS,
    "mini": [overview.mini],
}
