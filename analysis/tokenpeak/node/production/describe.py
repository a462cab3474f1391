"""Description of production's definition, without what may be secret in it, and of the last apply."""

from __future__ import annotations

from dataclasses import replace

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.command import checksum, text
from tokenpeak.node.guard import record as records
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.machine.words import hidden_env, hidden_words
from tokenpeak.node.production import permission, production
from tokenpeak.node.production.identity import ForeignServerError, OfProduction
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.production.put_back import APPLIED
from tokenpeak.node.protocol.answers import AppliedState, DescribeAnswer


def describe(state: State, declaration: Json, *, limited: bool = False) -> DescribeAnswer:
    """Describe what an apply would change; `problem` says why none is possible (to a restricted user)."""
    declared = declaration.get("production") or {"manager": "none"}
    record = records.read_if_possible(state)
    answer = DescribeAnswer(
        test_load=bool((declaration.get("bake") or {}).get("test_load")),
        applied=_applied(state),
        unconfirmed=str(record["trial_id"]) if record and "apply" in record else None,
    )
    try:
        running_production, unwell = production.look_closely(declared, state)
        manager = make_manager(declared, state)
        described = manager.describe()
        command = manager.command(described)
    except ScriptError as error:
        return replace(answer, problem=error.text)
    problem = unwell
    if record is not None:
        problem = (
            f"{record['trial_id']} of {record['holder']} has the node: wait for its end, or run `tokenpeak restore`."
        )
    elif not running_production.running:
        problem = "Production does not run: start it as usual, then apply."
    elif problem is None and limited:
        problem = permission.root_problem(manager)
        problem = problem or permission.user_problem(manager, described, command)
    words = manager.shown_words(command)
    place = manager.place(described["own"])
    return replace(
        answer,
        production=running_production,
        problem=problem,
        place=place,
        words=tuple(hidden_words(words)),
        program=command.program,
        env=hidden_env(command.env),
        image=command.image,
        text=text(place, command, words),
        sha256=checksum(described),
        **(_reported(declared, state) if running_production.running and running_production.url and not unwell else {}),
    )


def _reported(declared: Json, state: State) -> Json:
    """The version and the longest context that production itself reports."""
    url, check = str(declared["url"]), OfProduction(make_manager(declared, state))
    try:
        version = serving.reported_version(url, check=check)
        key, ca_file = serving.key_from_file(declared.get("api_key_file")), declared.get("ca_file")
        answer = serving.request(f"{url}/v1/models", key=key, check=check, ca_file=ca_file)
        longest = serving.parsed(answer.text)["data"][0].get("max_model_len")
    except ForeignServerError:
        return {}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        longest = None
    return {"engine_version": version, "max_model_len": longest if type(longest) is int and longest >= 0 else None}


def _applied(state: State) -> AppliedState | None:
    """The last apply that was confirmed; None where there was none, or nothing readable says so."""
    try:
        record = state.read(APPLIED)
        if record is None:
            return None
        apply = record["apply"]
        return AppliedState(
            apply_id=apply["id"],
            holder=record["holder"],
            at_unix_s=record.get("armed_at_unix_s"),
            was_sha256=apply["was_sha256"],
            new_sha256=apply["new_sha256"],
            was_text=apply["was_text"],
            new_text=apply["new_text"],
        )
    except (ScriptError, KeyError):
        return None
