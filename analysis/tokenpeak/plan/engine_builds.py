"""Engine builds of a plan: which of a node's builds a config is launched with, and why it cannot be with any."""

import re
from collections.abc import Iterable, Mapping, Sequence

from tokenpeak.errors import PlanError
from tokenpeak.node.engine_builds import is_version
from tokenpeak.records import Config, EngineBuild, NodeFacts
from tokenpeak.vllm.command import command_line
from tokenpeak.vllm.flags import FlagFacts, installed_flags

_VERSION = re.compile(r"v?\d+\.\d+\S*")


def build_of(config: Config, node: NodeFacts) -> EngineBuild:
    """The build that a resolved config is launched with; the default one where it names none that the node has."""
    return next((build for build in node.builds if build.name == config.engine), node.builds[0])


def asked_build(asked: str | None, node: NodeFacts) -> EngineBuild:
    """The build of a node that a spec's `engine` asks for, a name or else a version; the default one for None.

    Raises PlanError that names the builds there are. One of unknown version stands for any.
    """
    builds = node.builds
    if asked is None:
        return _startable(builds[0])
    for build in builds:
        if build.name == asked:
            return _startable(build)
    if _VERSION.fullmatch(asked):
        found = [build for build in builds if is_version(asked, build.release)]
        known = [build for build in found if build.release is not None]
        if found:
            return _startable((known or found)[0])
    raise PlanError(
        f"no engine build of {node.node} is {asked!r}: it has {_listed(builds)}. Add one to tokenpeak_engines of the "
        "inventory, or ask for one of these"
    )


def known_flags_of(build: EngineBuild, version: str | None) -> Mapping[str, FlagFacts] | None:
    """The flags that a build's own help lists; None where the table of releases is to be asked."""
    return installed_flags(build.help, build.installed, version)


def takes(config: Config, nodes: Iterable[NodeFacts]) -> bool:
    """Whether any build of these nodes takes the config's flags."""
    for node in nodes:
        for build in node.builds:
            spoken = config.model_copy(update={"engine_version": build.release})
            try:
                command_line(spoken, build.release, known_flags_of(build, build.release))
            except PlanError:
                continue
            return True
    return False


def _startable(build: EngineBuild) -> EngineBuild:
    """The build; raises PlanError where it is known that no trial could be of it."""
    if build.problem is not None:
        raise PlanError(f"engine build {build.name!r}: {build.problem.rstrip('.')}")
    if not is_version(build.version, build.installed):
        raise PlanError(
            f"engine build {build.name!r} is to be vLLM {build.version}, and {build.installed} is installed: correct "
            "its version in the inventory, or its command"
        )
    return build


def _listed(builds: Sequence[EngineBuild]) -> str:
    return ", ".join(f"{build.name} (vLLM {build.release or 'of unknown version'})" for build in builds)
