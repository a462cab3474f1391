"""The recommended config of a winner group: the closest to what runs now.

The configs of a winner group are tied, so the best mean among them is no reason to recommend one. Settings decide
instead: they can be counted. A config that broke the SLO is recommended only where all did. The terminal and the site
both use this module.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpeak.errors import FactsError
from tokenpeak.plan.baseline import DEFAULTS
from tokenpeak.ranking.objective import objective_direction
from tokenpeak.ranking.ties import Verdicts
from tokenpeak.records import Config
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flags import known_flags


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Whether one launch of a config held the SLO in the objective's run; None: not known."""

    config: Config
    slo_met: bool | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The recommended config, out of a group of how many, and why it is that one: no reason where it stands alone.

    `of_group` is what holds of the group, `merits` what sets this one apart.
    """

    config: Config
    group: int
    of_group: tuple[str, ...] = ()
    merits: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Why it is recommended, as a sentence without its stop; empty where it stands alone."""
        return f"{', '.join(self.of_group)}; this one {' and '.join(self.merits)}" if self.of_group else ""


def choose(
    spec: SweepSpec,
    verdicts: Verdicts,
    launches: Sequence[Launch],
    planned: Sequence[Config],
    engine_version: str | None,
) -> Choice | None:
    """The recommended config; None where no config gave a result.

    `launches` are those that the verdicts rest on. `planned` holds the baselines, tried or not; what a config leaves
    unset stands at the default of `engine_version`.
    """
    configs = {launch.config.config_id: launch.config for launch in launches}
    group = [standing.config for standing in verdicts.standings if standing.may_be_recommended]
    if len(group) < 2:
        return Choice(config=configs[group[0]], group=1) if group else None
    # The highest rate within the SLO has been judged by it already.
    judged = not spec.objective.is_rate
    broken = {launch.config.config_id for launch in launches if judged and launch.slo_met is False}
    left = [config_id for config_id in group if config_id not in broken] or group
    of_group = [
        f"{len(group)} configs tie"
        if verdicts.noise is not None
        else f"{len(group)} configs are within {spec.search.margin:.0%} of the best"
    ]
    merits: list[str] = []
    if len(left) < len(group):
        of_group.append(f"{len(group) - len(left)} broke the SLO")
    if len(left) > 1:
        left, words = _closest([configs[each] for each in left], _reference(spec, planned), engine_version)
        merits.append(words)
    return Choice(
        config=configs[left[0]],
        group=len(group),
        of_group=tuple(of_group),
        merits=(_standing_words(spec, verdicts, left[0]), *merits),
    )


def _standing_words(spec: SweepSpec, verdicts: Verdicts, recommended: str) -> str:
    """How the recommended config measured beside the first of its group."""
    first = verdicts.standings[0]
    if first.config == recommended:
        return "measured best"
    mean = next(standing.mean for standing in verdicts.standings if standing.config == recommended)
    behind = f"{abs(mean / first.mean - 1):.1%}"
    word = "above" if objective_direction(spec) == "lower" else "below"
    return f"measured {behind} {word} the best" if behind != "0.0%" else "measured the same as the best"


def _reference(spec: SweepSpec, planned: Sequence[Config]) -> Config | None:
    """The config that runs now, as far as is known: production, or the baseline the user named, else the defaults."""
    names = [*(name for name in spec.search.baseline if name != DEFAULTS), DEFAULTS]
    known = {config.name: config for config in planned}
    return next((known[name] for name in names if name in known), None)


def _closest(group: Sequence[Config], reference: Config | None, version: str | None) -> tuple[list[str], str]:
    """The config of the group (best first) that changes the fewest settings of the reference, in words."""
    changes = {config.config_id: _changes(config, reference, version) for config in group}
    recommended = min(changes, key=changes.__getitem__)
    runs = reference is not None and reference.name != DEFAULTS
    of = reference.name if reference is not None and runs else "the engine's defaults"
    if not changes[recommended]:
        return [recommended], f"changes nothing of {of}{': keep what runs now' if runs else ''}"
    return [recommended], f"is closest to {of}"


def _changes(config: Config, reference: Config | None, version: str | None) -> int:
    """How many settings differ from the reference's; None stands for the engine's defaults."""
    flags = reference.flags if reference is not None else {}
    env = reference.env if reference is not None else {}
    runs = reference.engine_version if reference is not None else None
    ours, theirs = _defaults(config.engine_version or version), _defaults(runs or version)
    differing = sum(
        _set(config.flags, name, ours) != _set(flags, name, theirs) for name in config.flags.keys() | flags.keys()
    )
    differing += sum(config.env.get(name) != env.get(name) for name in config.env.keys() | env.keys())
    if reference is not None:
        differing += (config.model.name, config.model.revision) != (reference.model.name, reference.model.revision)
        differing += config.engine_version != runs
    return differing


def _set(flags: dict[str, bool | int | float | str | None], name: str, defaults: dict[str, object]) -> object:
    """A flag's value; the engine's default where the flag is left out."""
    value = flags.get(name)
    return defaults.get(name) if value is None else value


def _defaults(version: str | None) -> dict[str, object]:
    """Each flag's default; none are known of an engine that is not vLLM."""
    try:
        return {name: facts.default for name, facts in known_flags(version).items()}
    except FactsError:
        return {}


SIXTEEN_BITS = "16 bits"
_SIXTEEN = ("none", "auto", "half", "float16", "bfloat16")
"""Words of `dtype` and `kv_cache_dtype` that come to 16 bits: vLLM's `auto` uses no wider format."""
_SAME = {"fp8_e4m3": "fp8", "float": "float32"}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A model with its number formats; `quantization` is empty where the checkpoint is served as it is."""

    model: str
    revision: str
    quantization: str
    kv_cache: str
    computed: str

    def changes(self, other: "Precision") -> tuple[str, ...]:
        """Differences from `other`, in words; empty where the two are equal."""
        changed = []
        if (self.model, self.revision) != (other.model, other.revision):
            changed.append(f"model {self.model}{f' {self.revision}' if self.revision else ''}")
        if self.quantization != other.quantization:
            changed.append(f"{self.quantization or 'unquantized'} weights")
        if self.kv_cache != other.kv_cache:
            changed.append(f"{self.kv_cache.replace(SIXTEEN_BITS, '16-bit')} KV cache")
        if self.computed != other.computed:
            changed.append(f"computation in {self.computed}")
        return tuple(changed)


def precision_of(config: Config) -> Precision:
    """The precision that a config asks for."""
    flags = config.flags
    return Precision(
        model=config.model.name,
        revision=config.model.revision or "",
        quantization=str(flags.get("quantization") or ""),
        kv_cache=_format(flags.get("kv_cache_dtype")),
        computed=_format(flags.get("dtype")),
    )


def _format(value: object) -> str:
    word = str(value if value is not None else "none").lower()
    return SIXTEEN_BITS if word in _SIXTEEN else _SAME.get(word, word)
