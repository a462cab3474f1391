"""What components hold of an axis before anything is measured."""

import numpy as np

from tokenpeak.search.posterior import draw_components
from tokenpeak.search.space import ABSENT, Space, axis_of


def test_an_absent_value_leaves_the_others_their_say() -> None:
    """A value that is no number lies on no curve: the axis's numbers may differ as much as those of any other axis."""
    words = ("1", "3", "5", ABSENT)
    points = np.arange(len(words))
    space = Space(
        axes=(axis_of("speculative_tokens", words),),
        levels=points[:, None],
        head=points,
        configs=words,
        names=words,
        point_of={word: point for point, word in enumerate(words)},
        expected=np.full(len(words), 100.0),
    )

    (table,) = draw_components(space, np.random.default_rng(1), informed=True).tables
    own = np.diagonal(table, axis1=1, axis2=2)

    assert own[:, :3].mean(axis=1).min() > 0.4
    assert own[:, 3].max() < 3.0
