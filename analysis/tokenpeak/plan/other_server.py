"""Config of a server that is not vLLM: launched as its build's command says, without a flag, a rule or a prediction."""

import shlex
from collections.abc import Sequence

from tokenpeak.errors import PlanError
from tokenpeak.records import Config, PlannedConfig
from tokenpeak.spec.axes import Alternative, ExtraConfig
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.flag_effects import answers_key

_VLLM_VARIABLES = "VLLM_"


def without_vllm(config: Config, spec: SweepSpec) -> Config:
    """The config as another server gets it: without vLLM's flags and variables, and the axes that have nothing else.

    So configs that differ in vLLM's flags alone are one. Raises PlanError where flags are given to this very server.
    """
    patches: list[Alternative | ExtraConfig] = [
        one for axis, name in config.choices.items() for one in spec.axes[axis] if one.name == name
    ]
    patches += [one for one in spec.extra_configs if not patches and one.name == config.name]
    if wrong := next((one for one in patches if one.engine and one.flags), None):
        raise PlanError(
            f"{wrong.name!r} gives {', '.join(wrong.flags)} to {config.engine_version}, which takes no flag of vLLM's. "
            "Write its own words into args."
        )
    choices = {axis: name for axis, name in config.choices.items() if any(map(_is_for_others, spec.axes[axis]))}
    label = ", ".join(f"{axis}={name}" for axis, name in choices.items())
    return config.model_copy(
        update={
            "name": label or config.name,
            "choices": choices,
            "flags": {},
            "env": {name: value for name, value in config.env.items() if not name.startswith(_VLLM_VARIABLES)},
        }
    )


def _is_for_others(alternative: Alternative) -> bool:
    """Whether it changes more than vLLM's flags and variables."""
    others = [name for name in alternative.env if not name.startswith(_VLLM_VARIABLES)]
    return bool(alternative.engine or alternative.args or others or alternative.model.model_fields_set)


def unpredicted(config: Config) -> PlannedConfig:
    """The config as it is planned: a class of its own, with a sentence that says what is not known of it."""
    return PlannedConfig(
        config=config,
        config_class=config.config_id[:8],
        answers=answers_key(config),
        advice=(
            f"{config.engine_version} is not vLLM: its memory and speed are not predicted, and no rule drops it before "
            "its launch",
        ),
    )


def launched_line(config: Config, argv: Sequence[str]) -> str:
    """The command of a launch as a line to paste into a shell, with the config's environment."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in config.env.items()), shlex.join(argv)])
