"""Production's user, or the engine's, owns the folder of a file of secrets and puts a link to a file of root's there.

Root read what the link leads to, sent it as production's key or put it into the engine's environment, and the refusal
of what is no header repeated it to `tuner`. A path that others can lead elsewhere is refused, a key is one printable
word, and no error repeats what was read.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import ATTACKER

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.engine import declared_environment
from tokenpeak.node.engine.serving import ServerAnswer
from tokenpeak.node.guard import notify
from tokenpeak.node.installation import rights
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import State, content_of
from tokenpeak.node.probe.facts import probe
from tokenpeak.node.production.answering import Answering
from tokenpeak.node.production.identity import Check

SECRET = "AWS_SECRET=r00ts-own"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's part needs root to play it")


@pytest.fixture
def victim(place: Path) -> Path:
    """A file that root alone can read."""
    path = place / "credentials"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def led(place: Path, victim: Path, how: str) -> Path:
    """The declared path, which leads to the victim."""
    folder = place / "theirs"
    folder.mkdir(exist_ok=True)
    path = folder / "key"
    if how == "link":
        path.symlink_to(victim)
    elif how == "folder":
        (folder / "below").symlink_to(place)
        path = folder / "below" / victim.name
    elif how == "second name":
        path.hardlink_to(victim)
    else:
        (place / "here").symlink_to(folder)
        path.symlink_to(victim)
        path = place / "here" / "key"
    os.chown(folder, ATTACKER, ATTACKER)
    return path


@as_root
@pytest.mark.parametrize("how", ["link", "folder", "second name", "link of root's"])
def test_path_that_others_lead(place: Path, victim: Path, how: str) -> None:
    """Neither a key, nor the engine's environment, nor the secret of a notification; `install` says what to do."""
    path = str(led(place, victim, how))
    declaration: dict[str, Any] = {"engine": {"env_file": path}, "production": {"api_key_file": path}}
    receiver = {"webhook": "http://127.0.0.1:9", "secret_file": path}

    with pytest.raises(ScriptError) as key:
        serving.key_from_file(path)
    with pytest.raises(ScriptError) as environment:
        declared_environment(declaration)
    with pytest.raises(ScriptError) as signature:
        notify.deliver(receiver, notify.event("test", "x", source="node"))
    problems = rights.secret_problems(declaration)

    for text in (key.value.text, environment.value.text, signature.value.text, *problems):
        assert "others could lead to another file" in text
        assert "belongs to user nobody. Move it to a folder that root alone may write" in text
        assert SECRET not in text
    assert 2 == len(problems)


@as_root
def test_probe_shows_nothing_of_it(place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of several lines is no header: http.client repeated it in what `tuner` is answered."""
    victim.write_text(f"{SECRET}\nand more\n")
    path = led(place, victim, "link")
    state = State.make(place / "state")
    declared = {"manager": "none", "url": "http://127.0.0.1:9", "api_key_file": str(path)}
    declaration = {"production": declared, "engine": {"command": ["/nonexistent"]}, "host": "127.0.0.1", "port": 8099}
    state.put("node.json", content_of(declaration), 0o600)

    answer = json.dumps(probe(state, declaration), default=vars)

    assert "others could lead to another file" in answer
    assert "r00ts-own" not in answer


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "k\x00y", "schlüssel", "a\x7fb"])
def test_key_that_is_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """It is refused before any request, by `install` too, and not repeated."""
    sent: list[str] = []
    monkeypatch.setattr(serving, "request", lambda url, *_, **__: sent.append(url) or ServerAnswer(0, ""))
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    declared = {"url": "http://127.0.0.1:9", "api_key_file": str(path)}
    check: Check = lambda connection: None  # noqa: E731

    with pytest.raises(ScriptError) as refused:
        Answering(declared).served_model(check)

    assert [refused.value.text] == rights.secret_problems({"production": declared})
    assert "one word of printable characters" in refused.value.text
    assert not content or content not in refused.value.text
    assert [] == sent


def test_key_that_is_no_header(tmp_path: Path) -> None:
    """Wherever it came from, what http.client would refuse by repeating it does not come so far."""
    with pytest.raises(ScriptError) as refused:
        serving.request("http://127.0.0.1:9/v1/models", key=f"{SECRET}\nx")

    assert SECRET not in refused.value.text


def test_webhook_that_is_no_address(tmp_path: Path) -> None:
    """What a file of webhooks holds is in no message either."""
    path = tmp_path / "webhook"
    path.write_text(SECRET)
    path.chmod(0o600)

    ended = notify.send([{"webhook_file": str(path)}], notify.event("test", "x", source="node"), (0.0,))

    assert ended != [None]
    assert SECRET not in str(ended)
