"""The deployer changes production so that it runs as root afterwards, though it did not before.

He had Compose take a declared build's image whose own user is root, put a declared build in the place of a program
that `setpriv` ran as another user, or rolled back over what an administrator had mended since, production's user among
it. Each is refused before anything is touched: what counts is the definition that the change writes, not what ran
before.
"""

import json
from pathlib import Path

import pytest
from tests.attacks.conftest import needs_root

from tokenpeak.node import rights
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.process import Ran
from tokenpeak.node.machine.state import Json, State
from tokenpeak.node.production import change
from tokenpeak.node.production.manager import Manager, checksum
from tokenpeak.node.production.managers import make_manager
from tokenpeak.node.protocol.requests import ChangeRequest, parse

OTHER = {"image": "vllm/vllm-openai:v9", "runtime": "docker", "user": "1000"}
DECLARATION: Json = {
    "engine": {"user": "nobody"},
    "engines": [{"name": "box", "build": OTHER}, {"name": "own", "build": {"command": ["/bin/true", "serve"]}}],
}
SECTION = "[program:llm]\ncommand=/bin/true serve m\n"
DEBUG = "[program:debug]\ncommand=/bin/sleep 9\nuser=root\n"


@pytest.fixture(autouse=True)
def _ran_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process that is seen before has a user of its own."""
    monkeypatch.setattr(rights, "root_problem", lambda manager: None)


def described(kind: str, folder: Path, user: str | None) -> tuple[Json, Json]:
    """Production of a kind of manager as it is declared, and as it is described, with `user` where it names one."""
    words, named = ["/bin/true", "serve"], {} if user is None else {"user": user}
    file = folder / "file"
    if kind == "compose":
        service = {"image": "prod:1", "entrypoint": words, "command": ["m"], **named}
        return {"file": str(file), "unit": "llm"}, {
            "own": {"file": str(file), "content": None},
            "seen": {"service": service},
        }
    if kind == "docker":
        config = {"Entrypoint": words, "Cmd": ["m"], "Image": "prod:1", "User": user or ""}
        return {"unit": "llm"}, {"own": {"id": "1", "restart": "no"}, "seen": {"Config": config}}
    if kind == "podman":
        create = ["podman", "run", *([f"--user={user}"] if user else []), "prod:1", "m"]
        seen = {
            "create": create,
            "entrypoint": words,
            "cmd": ["m"],
            "env": [],
            "image": "prod:1",
            "user": user or "1000",
        }
        return {"unit": "llm"}, {"own": {"id": "1", "restart": "no"}, "seen": seen}
    if kind == "kubernetes":
        container = {"name": "llm", "command": words, "args": ["m"], "image": "prod:1"}
        context = {} if user is None else {"securityContext": {"runAsUser": int(user)}}
        return {"unit": "deployment/llm"}, {
            "own": {"template": {"spec": {"containers": [container], **context}}},
            "seen": {},
        }
    if kind == "supervisord":
        text = SECTION + (f"user={user}\n" if user is not None else "")
        file.write_text(text)
        return {"unit": "llm", "config": str(file)}, {"own": {"file": str(file), "content": text}, "seen": {}}
    if kind == "systemd":
        started = "argv[]=/bin/true serve m ; ignore_errors=no"
        seen = {"exec_start": ["/bin/true serve m"], "started": started, "environment": "", "unset": ""}
        return {"unit": "llm.service"}, {"own": {"file": str(file), "content": None, "env": {}}, "seen": seen}
    own_user = [] if user is None else ["/usr/bin/setpriv", f"--reuid={user}"]
    process = {"argv": [*own_user, *words, "m"]}
    return {"process": process}, {"own": {"content": None}, "seen": {"declared": process}}


def definition(kind: str, state: State, user: str | None, monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Production of a kind of manager, of which nothing is asked and nothing made."""
    declared, described_ = described(kind, state.path("x").parent, user)
    found = make_manager({"manager": kind, **declared}, state)
    monkeypatch.setattr(found, "describe", lambda: described_)
    monkeypatch.setattr(found, "prepared", lambda was, command, mark: was["own"])
    monkeypatch.setattr(found, "ask", lambda argv: Ran(0, f"User={user or ''}\nDynamicUser=no\n", ""))
    return found


def request(found: Manager, edit: Json | None) -> ChangeRequest:
    fields = {"apply_id": "a", "holder": "h", "lease_s": 5, "confirm_within_s": 9}
    return parse(ChangeRequest, {**fields, "was_sha256": checksum(found.describe()), "edit": edit})


def refusal(state: State, found: Manager, edit: Json | None) -> str:
    """Why the deployer may not; empty where he may."""
    try:
        change._prepared(state, found, request(found, edit), DECLARATION)
    except ScriptError as error:
        return error.text
    return ""


@needs_root
@pytest.mark.parametrize("kind", ["compose", "docker", "kubernetes"])
def test_image_whose_own_user_is_root(state: State, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another image is taken where the definition itself names the user, whatever the image's is."""
    answers = {}
    for user in (None, "0", "1000"):
        found = definition(kind, state, user, monkeypatch)
        answers[user] = refusal(state, found, {"words": [0, 1, 2], "env": {}, "image": OTHER["image"]})

    assert "names no user for what this change starts" in answers[None]
    assert "let the definition itself name a user of production's own" in answers[None]
    assert answers["0"]
    assert "" == answers["1000"]


@needs_root
@pytest.mark.parametrize("kind", ["compose", "docker", "podman", "kubernetes", "supervisord", "systemd"])
def test_definition_that_is_root_s_by_now(state: State, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator has changed it, or its image's tag, and not started it again: what runs says nothing."""
    edit = {"words": [0, 1, 2, "--say", "x"], "env": {}, "image": None}
    answers = {user: refusal(state, definition(kind, state, user, monkeypatch), edit) for user in (None, "0", "1000")}

    assert "a restricted user starts nothing that may be root's" in answers[None]
    assert "names the user '0'" in answers["0"]
    assert "" == answers["1000"]


@needs_root
def test_build_without_setpriv(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program would be root's, for what made it another user's is gone."""
    found = definition("command", state, "1000", monkeypatch)

    assert "" == refusal(state, found, {"words": [0, 1, 2, 3, "--say"], "env": {}, "image": None})
    assert "names no user" in refusal(state, found, {"words": ["/bin/true", "serve", 4], "env": {}, "image": None})


def applied(state: State, before: Json, left: Json) -> None:
    """A confirmed apply that made `left` of `before`."""
    apply = {"id": "a-0", "was": before, "was_text": "", "new_sha256": checksum(left)}
    state.write("applied.json", {"apply": apply})


@needs_root
@pytest.mark.parametrize("changed", [("command=/bin/sleep 9\n", "command=/bin/sleep 8\n"), (DEBUG, "; gone\n")])
def test_rollback_over_an_administrator_s_change(
    state: State, changed: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file would be what it was before the apply, a program of root's that was taken away among it."""
    found = definition("supervisord", state, "nobody", monkeypatch)
    before = found.describe()
    before["own"]["content"] += DEBUG
    left = json.loads(json.dumps(before).replace("serve m", "serve m --say x"))
    now = json.loads(json.dumps(left))
    now["own"]["content"] = now["own"]["content"].replace(*changed)
    applied(state, before, left)

    monkeypatch.setattr(found, "describe", lambda: left)
    assert "" == refusal(state, found, None)
    monkeypatch.setattr(found, "describe", lambda: now)
    assert "is not as apply a-0 left it" in refusal(state, found, None)
    assert "let an administrator roll back" in refusal(state, found, None)
    assert before["own"] == change._prepared(state, found, request(found, None), None)["new"]


@needs_root
def test_production_that_runs_as_root_after_all(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at again when it answers, and given back: a user's name of the image, say, that is root's."""
    record = {"nonce": "n", "production": {}, "stopped": {"boot_s": 0.0}}
    monkeypatch.setattr(change, "_begin", lambda *_: (record, None))
    monkeypatch.setattr(change, "_stop_and_write", lambda *_: record)
    monkeypatch.setattr(change, "_verify", lambda *_: None)
    monkeypatch.setattr(change, "recorded_manager", lambda *_: None)
    monkeypatch.setattr(change, "_failed", lambda *failed: failed[-1])
    monkeypatch.setattr(rights, "root_problem", lambda manager: "Production runs as root")
    asked = parse(
        ChangeRequest,
        {"apply_id": "a", "holder": "h", "lease_s": 5, "confirm_within_s": 9, "was_sha256": "0" * 64, "edit": None},
    )

    assert "Production runs as root" == str(change.change(state, DECLARATION, asked, limited=True))
    assert "Production runs as root" != str(change.change(state, DECLARATION, asked))
