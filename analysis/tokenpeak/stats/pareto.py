"""Several objectives at once: the configs that none beats in all of them."""

from collections.abc import Mapping, Sequence


def pareto_front(values: Mapping[str, Sequence[float]], directions: Sequence[str]) -> tuple[str, ...]:
    """The keys whose values no other's are at least as good in every objective and better in one.

    `directions` says for each objective `higher` or `lower`. Equal entries are all kept; order is that of `values`.
    """
    signs = [-1.0 if direction == "lower" else 1.0 for direction in directions]
    points = {key: tuple(sign * value for sign, value in zip(signs, row, strict=True)) for key, row in values.items()}

    def beaten(point: tuple[float, ...]) -> bool:
        return any(
            other != point and all(theirs >= ours for theirs, ours in zip(other, point, strict=True))
            for other in points.values()
        )

    return tuple(key for key, point in points.items() if not beaten(point))
