"""Applicable result: the config that a sweep recommends for a node, and what stands against its production."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenpeak.errors import FactsError, InputError, PlanError, suggestion
from tokenpeak.node.engine.builds import is_version, is_vllm
from tokenpeak.node.protocol.answers import DescribeAnswer
from tokenpeak.plan.baseline import parse_arguments
from tokenpeak.plan.matrix import own_models
from tokenpeak.plan.node_kinds import build_of
from tokenpeak.plan.serving import Described, Edit, Program, described_model, production_edit
from tokenpeak.quality.answers import verdict_of
from tokenpeak.ranking.candidates import decided_by_records
from tokenpeak.ranking.decision_words import current_words, headline, plain
from tokenpeak.ranking.objective import objective_value
from tokenpeak.ranking.precision import precision_of
from tokenpeak.records import Config, Despite, EndRecord, NodeFacts, Plan, SweepRecord, TrialRecord
from tokenpeak.records.quality import SweepQuality
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.vllm.renames import speculative_config

IMAGE_MANAGERS = ("docker", "podman", "compose", "kubernetes")
"""Managers whose production is an image; of the others it is a program on the node."""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Why a result is not applied, and what would do; `despite`: by which declaration it is."""

    reason: str
    remedy: str
    despite: Despite | None = None

    def __str__(self) -> str:
        declared = f" Or declare it: --despite {self.despite}." if self.despite else ""
        return f"{self.reason}: {self.remedy}.{declared}"


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep left: its record, spec, trials and end."""

    record: SweepRecord
    spec: SweepSpec
    trials: tuple[TrialRecord, ...]
    end: EndRecord | None
    quality: SweepQuality | None

    def plan_of(self, facts: NodeFacts) -> Plan | None:
        """The plan of the node's kind of hardware, by what it is now; None where the sweep measured no such node.

        Where the sweep tuned each node's own model, it is the plan of this node's.
        """
        several = len(own_models(self.spec, self.record.nodes)) > 1
        for plan in self.record.plans:
            measured = [node for node in self.record.nodes if node.node in plan.nodes]
            is_own = not several or any(node.model == facts.model for node in measured)
            if is_own and any(_is_same_machine(facts, node) for node in measured):
                return plan
        return None

    def launches(self, plan: Plan, config: Config) -> tuple[TrialRecord, ...]:
        """The launches of a config on a kind of hardware that came up."""
        return tuple(
            trial
            for trial in self.trials
            if trial.hardware == plan.hardware
            and trial.config.config_id == config.config_id
            and trial.status == "ok"
            and not trial.holdout
        )

    def recommended(self, plan: Plan, name: str | None) -> Config:
        """The recommended config, or the one of this name or id; raises PlanError where there is none."""
        own = [trial for trial in self.trials if trial.hardware == plan.hardware]
        tried = {trial.config.config_id: trial.config for trial in own}
        if name is None:
            node = next(facts for facts in self.record.nodes if facts.node in plan.nodes)
            decision = decided_by_records(
                self.spec, own, plan=plan, quality=self.quality, engine_version=node.engine_version
            ).decision
            if decision.config is None or decision.outcome != "run":
                names = {config_id: config.name for config_id, config in tried.items()}
                words = plain(headline(decision, current_words(names.get(decision.current or ""))), names)
                raise PlanError(
                    f"On {plan.hardware} there is nothing to apply: {words}. Name a config by --config to apply it."
                )
            return tried[decision.config]
        for config in tried.values():
            if name in (config.name, config.config_id):
                return config
        raise InputError(f"No config {name!r} was tried. {suggestion(name, [one.name for one in tried.values()])}")


@dataclass(frozen=True, kw_only=True)
class Applicable:
    """A config for a node's production, with the edit that carries it there; obstacles are of all kinds."""

    config: Config
    engine_version: str | None
    described: Described
    edit: Edit | None
    """None where it cannot be made."""
    obstacles: tuple[Obstacle, ...]


def applicable(result: SweepResult, facts: NodeFacts, answer: DescribeAnswer, name: str | None) -> Applicable:
    """The config for this node; raises PlanError where the sweep has none, and InputError for a name it has not."""
    plan = result.plan_of(facts)
    if plan is None:
        measured = ", ".join(sorted({plan.hardware for plan in result.record.plans}))
        raise PlanError(
            f"the sweep measured {measured}, and this node is {facts.hardware} now (boards, memory, links or driver "
            "differ): sweep again on it"
        )
    config = result.recommended(plan, name)
    if not is_vllm(config.engine_version):
        raise PlanError(f"{config.name} ran on {config.engine_version}, and an apply changes vLLM's command alone")
    launches = result.launches(plan, config)
    described = described_of(answer)
    version = launches[0].startup.engine_version if launches else None
    program, stale = _program(config, launches, facts, answer)
    obstacles = [
        *_of_sweep(result, facts),
        *_of_config(result, config, launches),
        *stale,
        *_of_model(result, plan, facts, launches, answer, described),
        *_of_quality(result, plan, facts, config, described, version),
        *_of_context(config, answer),
    ]
    edit: Edit | None = None
    if launches:
        try:
            edit = production_edit(
                described,
                config,
                launches[0].argv,
                base_model=_base_model(result, facts, config),
                version=version,
                tuned_env=sorted({name for one in plan.feasible for name in one.config.env}),
                inventory_env=facts.engine_env,
                program=program,
            )
        except (PlanError, FactsError) as error:
            obstacles.append(Obstacle(reason=str(error).rstrip("."), remedy="apply another config by --config"))
    return Applicable(config=config, engine_version=version, described=described, edit=edit, obstacles=tuple(obstacles))


def described_of(answer: DescribeAnswer) -> Described:
    """Production's command in a node's answer."""
    return Described(
        place=answer.place or "",
        words=answer.words,
        program=answer.program or 0,
        env=answer.env or {},
        image=answer.image,
        text=answer.text or "",
        served_name=answer.production.model if answer.production is not None else None,
    )


def _of_sweep(result: SweepResult, facts: NodeFacts) -> Iterator[Obstacle]:
    record, end = result.record, result.end
    if record.imported is not None:
        yield Obstacle(reason="another tool measured this archive", remedy="sweep on your own nodes")
    if result.spec.endpoint is not None:
        yield Obstacle(reason="the sweep measured a server as it stood", remedy="sweep the engine's settings")
    if record.simulated:
        yield Obstacle(
            reason="the results are simulated",
            remedy="sweep on this node with its own engine",
            # Never into a real production.
            despite="simulated" if facts.simulated else None,
        )
    if end is None or end.status != "completed":
        yield Obstacle(
            reason="the sweep was interrupted before all trials were made",
            remedy=f"tokenpeak sweep --resume {record.sweep_id}",
            despite="interrupted",
        )


def _of_config(result: SweepResult, config: Config, launches: Sequence[TrialRecord]) -> Iterator[Obstacle]:
    if not any(objective_value(trial, result.spec) is not None for trial in launches):
        yield Obstacle(
            reason=f"{config.name} has no valid result in the objective's run",
            remedy="apply the recommended config, or sweep again",
        )


def _of_model(
    result: SweepResult,
    plan: Plan,
    facts: NodeFacts,
    launches: Sequence[TrialRecord],
    answer: DescribeAnswer,
    described: Described,
) -> Iterator[Obstacle]:
    """Production that serves another model than the sweep tuned."""
    tuned = result.spec.model or facts.model
    served = answer.production.model if answer.production is not None else None
    measured = [node for node in result.record.nodes if node.node in plan.nodes]
    names = {node.production.model for node in measured if node.production} - {None}
    names |= {tuned.name, tuned.served_name or tuned.name} if tuned is not None else set()
    names |= {trial.argv[trial.argv.index("serve") + 1] for trial in launches if "serve" in trial.argv[:-1]}
    version = launches[0].startup.engine_version if launches else None
    if launches and served not in names and described_model(described, version) not in names:
        known = ", ".join(sorted(name for name in names if name))
        yield Obstacle(reason=f"production serves {served}, and the sweep measured {known}", remedy="sweep that model")


def _of_quality(
    result: SweepResult, plan: Plan, facts: NodeFacts, config: Config, described: Described, version: str | None
) -> Iterator[Obstacle]:
    """Answers that are not shown to be as good, where precision, model or speculation is another than production's."""
    _, flags = parse_arguments(described.words[described.program :], version)
    base = config.model.model_copy(update={"name": _base_model(result, facts, config)})
    production = config.model_copy(update={"flags": flags, "model": base})
    changes = [*precision_of(config).changes(precision_of(production))]
    if speculative_config(config.flags) != speculative_config(production.flags):
        changes.append("speculation")
    answers = verdict_of(result.quality, plan.hardware, config.config_id)
    status = answers.verdict.status if answers is not None else None
    if status == "fail" or (changes and status != "pass"):
        word = {"fail": "failed", "unknown": "is not proven"}.get(str(status), "was not measured")
        change = f" and it changes {', '.join(changes)}" if changes else ""
        yield Obstacle(
            reason=f"the quality of {config.name} {word}{change}",
            remedy="sweep with quality: {reference: …}, or apply a config of equal precision by --config",
        )


def _of_context(config: Config, answer: DescribeAnswer) -> Iterator[Obstacle]:
    length, served = config.flags.get("max_model_len"), answer.max_model_len
    if isinstance(length, int) and not isinstance(length, bool) and served is not None and length < served:
        yield Obstacle(
            reason=f"{config.name} serves a context of {length} tokens, and production serves {served}",
            remedy=f"sweep with max_model_len {served}",
            despite="shorter_context",
        )


def _program(
    config: Config, launches: Sequence[TrialRecord], facts: NodeFacts, answer: DescribeAnswer
) -> tuple[Program | None, list[Obstacle]]:
    """What has to take the place of production's program, because another version was measured; and what is stale."""
    if not launches:
        return None, []
    measured, digests = launches[-1].startup.engine_version, {trial.startup.engine_digest for trial in launches}
    if is_version(measured, answer.engine_version):
        return None, []
    build = build_of(config, facts)
    now = build.installed or build.version
    is_there = build.problem is None and is_version(measured, now) and (not build.digest or build.digest in digests)
    stale = Obstacle(
        reason=f"vLLM {measured} was measured, production runs {answer.engine_version}, and {build.name} is {now}",
        remedy="sweep again with the build that production is to run",
    )
    manager = answer.production.manager if answer.production is not None else ""
    if not is_there or (build.image is not None) != (manager in IMAGE_MANAGERS):
        return None, [stale]
    # The command of a build is on the node; the launches began with it.
    argv = launches[-1].argv
    words = argv[: argv.index("serve") + 1] if "serve" in argv else ()
    return (Program(image=build.image) if build.image is not None else Program(words=tuple(words))), []


def _base_model(result: SweepResult, facts: NodeFacts, config: Config) -> str:
    tuned = result.spec.model or facts.model
    return tuned.name if tuned is not None else config.model.name


def _is_same_machine(now: NodeFacts, then: NodeFacts) -> bool:
    """Whether the boards, their links and driver, or without boards the processor, are those of then."""
    bare = [facts.hardware_key._replace(engines=(), engine_env=(), engine_env_allowed=()) for facts in (now, then)]
    if None in (bare[0].interconnect, bare[1].interconnect):
        bare = [key._replace(interconnect=None) for key in bare]
    return bare[0] == bare[1]


def remaining(obstacles: Sequence[Obstacle], despite: Sequence[Despite]) -> list[Obstacle]:
    """The obstacles that no declaration takes away."""
    return [obstacle for obstacle in obstacles if obstacle.despite is None or obstacle.despite not in despite]
