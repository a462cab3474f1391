"""Notification: a command or a webhook for what somebody must know of, from a node's guard or a controller.

`tokenpeak_notify` of the inventory declares the receivers. Whoever notifies goes on at once: a process of its own
sends, and sends again what did not get through, so that a slow or absent receiver delays nothing. What is sent is made
of names and fixed sentences; no output of a program and no secret is in it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Dict, Sequence
from urllib.parse import urlsplit

from tokenpeak.node.machine import process, root_files, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.words import shown_value

Json = Dict[str, Any]
EVENTS = {
    "production_down": "production does not come back after a trial or an apply",
    "production_back": "production that was called down serves again",
    "guard_acted": "a node's guard gave the node back, because its controller could not",
    "node_excluded": "a node failed so often in a row that a sweep goes on without it",
    "sweep_finished": "a sweep has made all its trials",
    "sweep_aborted": "a sweep ended before, whoever or whatever ended it",
    "test": "somebody asked for it: `tokenpeak notify`",
}
"""Event → when it is sent."""
DECLARED_AS = "tokenpeak_notify"
WAYS = ("command", "webhook", "webhook_file")
OPTIONS = ("secret_file", "events", "from")
SIDES = ("node", "controller")
WAITS_S = (0.0, 5.0, 30.0, 120.0, 600.0)
"""Before each attempt: a network is back within minutes of a boot, or somebody else has noticed."""
COMMAND_TIMEOUT_S = 60.0
WEB_TIMEOUT_S = 15.0
MOST_BYTES = 1 << 16
"""A pipe holds as much: whoever notifies is done, whatever the process does that sends."""
_TRY_AGAIN = (408, 425, 429)
_MOST_LETTERS = 2000


class NotSent(Exception):  # noqa: N818 - it is an outcome
    """Why one attempt did not get through, and whether another one may."""

    def __init__(self, text: str, *, again: bool) -> None:
        super().__init__(text)
        self.again = again


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is no receipt, and what is sent must not go where nobody declared."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def event(kind: str, text: str, *, source: str, node: str | None = None, **fields: str | None) -> Json:
    """The event as a receiver gets it; `source` is who says so, `text` a sentence."""
    return {
        "event": kind,
        "id": secrets.token_hex(8),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "from": source,
        "node": node,
        **{name: value for name, value in fields.items() if value is not None},
        "text": text[:_MOST_LETTERS],
    }


def problems(declared: object, side: str | None = None) -> list[str]:
    """The problem with the declared receivers; on a `side`, also what those that are called from there lack."""
    if not isinstance(declared, list):
        return [
            f"tokenpeak_notify is {shown_value(declared)}; give a list of receivers, each with one of "
            f"{', '.join(WAYS)}."
        ]
    wrong_ones: list[str] = []
    for number, receiver in enumerate(declared, start=1):
        wrong = _shape_problem(receiver)
        if wrong is None and side is not None and side in _sides(receiver):
            wrong = _lack(receiver)
        if wrong is not None:
            wrong_ones.append(f"tokenpeak_notify, receiver {number}: {wrong}")
    return wrong_ones


def _shape_problem(receiver: object) -> str | None:
    if not isinstance(receiver, dict):
        return f"it is {shown_value(receiver)}; give one of {', '.join(WAYS)}."
    ways = [way for way in WAYS if receiver.get(way)]
    if len(ways) != 1 or set(receiver) - {*WAYS, *OPTIONS}:
        return f"it has {', '.join(map(str, receiver))}; give one of {', '.join(WAYS)}, and of {', '.join(OPTIONS)}."
    words = receiver.get("command")
    if words is not None and not (isinstance(words, list) and words and all(isinstance(word, str) for word in words)):
        return f"command is {shown_value(words)}; give a program with its arguments as a list."
    for key in ("webhook", "webhook_file", "secret_file"):
        if receiver.get(key) is not None and not isinstance(receiver[key], str):
            return f"{key} is {shown_value(receiver[key])}; give a text."
    if "webhook" in receiver and not _is_url(receiver["webhook"]):
        return f"webhook is {shown_value(receiver['webhook'])}; give a URL that begins with https:// or http://."
    if receiver.get("secret_file") and ways[0] not in ("webhook", "webhook_file"):
        return "secret_file signs what a webhook gets; leave it out."
    events = receiver.get("events", [])
    unknown = [name for name in events if name not in EVENTS] if isinstance(events, list) else [events]
    if unknown:
        return f"no event is called {shown_value(unknown[0])}: there are {', '.join(EVENTS)}."
    if receiver.get("from") not in (None, *SIDES):
        return f"from is {shown_value(receiver['from'])}; give node or controller, or leave it out for both."
    return None


def _lack(receiver: Json) -> str | None:
    """The problem of this machine with calling the receiver."""
    try:
        if "command" in receiver and shutil.which(receiver["command"][0]) is None:
            return f"there is no program {receiver['command'][0]} here; put it there, or say from where it is called."
        if "command" in receiver:
            return trust.danger_to_root(DECLARED_AS, trust.files_of_command(receiver["command"]))
        if "webhook_file" in receiver and not _is_url(_url(receiver)):
            return f"webhook_file {receiver['webhook_file']} holds no URL."
        if receiver.get("secret_file"):
            trust.read_secret(receiver["secret_file"], "secret_file")
    except ScriptError as error:
        return error.text
    return None


def called(declared: object, kind: str, side: str) -> list[Json]:
    """The receivers that get such an event from this side; none where the declaration is not usable."""
    if not declared or problems(declared):
        return []
    assert isinstance(declared, list), "a declaration without problems is a list"
    return [each for each in declared if side in _sides(each) and kind in (*each.get("events", EVENTS), "test")]


def _sides(receiver: Json) -> Sequence[str]:
    return (receiver["from"],) if receiver.get("from") else SIDES


def start(argv: Sequence[str], receivers: Sequence[Json], sent: Json, log: Path) -> None:
    """Have a process of its own, started by `argv`, send the event; returns at once. Raises OSError."""
    if not receivers:
        return
    given = json.dumps({"receivers": list(receivers), "event": sent}).encode()
    if len(given) > MOST_BYTES:
        raise ValueError(f"tokenpeak_notify and an event have {len(given)} bytes, more than {MOST_BYTES}.")
    try:
        errors = root_files.appending(log)
    except OSError:
        errors = os.open(os.devnull, os.O_WRONLY)
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            cwd="/",
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(errors)
    assert child.stdin is not None, "it is a pipe"
    with child.stdin as pipe:
        pipe.write(given)
    # Nobody waits for its end; a thread takes its status, or it would stay a zombie of a guard that lives long.
    threading.Thread(target=child.wait, daemon=True).start()


def send(receivers: Sequence[Json], sent: Json, waits_s: Sequence[float] = WAITS_S) -> list[str | None]:
    """Send the event to each receiver, again where that fails; for each why it did not get through, or None."""
    ended: list[str | None] = [None] * len(receivers)

    def one(number: int) -> None:
        ended[number] = _send_one(receivers[number], sent, waits_s)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(receivers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def _send_one(receiver: Json, sent: Json, waits_s: Sequence[float]) -> str | None:
    reason = ""
    for wait_s in waits_s:
        time.sleep(wait_s)
        try:
            deliver(receiver, sent)
        except NotSent as error:
            reason = str(error)
            if not error.again:
                break
        except Exception as error:  # whatever a receiver does, the others are called
            # The error's own text may name the URL.
            reason = error.text if isinstance(error, ScriptError) else type(error).__name__
        else:
            return None
    return reason


def deliver(receiver: Json, sent: Json) -> None:
    """One attempt; raises NotSent, or whatever kept it."""
    if "command" in receiver:
        _run(receiver["command"], sent)
    else:
        file = receiver.get("secret_file")
        secret = trust.read_secret(file, "secret_file").strip() if file else ""
        _post(_url(receiver), secret, sent)


def name_of(receiver: Json) -> str:
    """The receiver in words that give nothing away: a webhook's URL may hold a token."""
    if "command" in receiver:
        return f"command {receiver['command'][0]}"
    if "webhook_file" in receiver:
        return f"webhook of {receiver['webhook_file']}"
    return f"webhook at {urlsplit(receiver['webhook']).hostname}"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Signature, which a receiver computes as well: HMAC-SHA256 over the timestamp, a dot and the body."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _post(url: str, secret: str, sent: Json) -> None:
    body = json.dumps(sent, sort_keys=True).encode()
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "tokenpeak",
        "X-TokenPeak-Event": sent["event"],
        "X-TokenPeak-Id": sent["id"],
        "X-TokenPeak-Timestamp": timestamp,
    }
    if secret:
        headers["X-TokenPeak-Signature"] = signature(secret, timestamp, body)
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - see _is_url
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=WEB_TIMEOUT_S) as response:
            response.read(1 << 16)
    except urllib.error.HTTPError as error:
        again = error.code >= 500 or error.code in _TRY_AGAIN
        raise NotSent(f"it answered {error.code}", again=again) from None
    except (OSError, ValueError) as error:
        # The error's own text may name the URL.
        raise NotSent(f"it could not be reached: {type(error).__name__}", again=True) from None


def _run(command: Sequence[str], sent: Json) -> None:
    """The command with the event as JSON on its standard input, and its kind, node and text in its environment."""
    if wrong := trust.danger_to_root(DECLARED_AS, trust.files_of_command(command)):
        raise NotSent(wrong, again=False)
    env = {
        **os.environ,
        "TOKENPEAK_EVENT": sent["event"],
        "TOKENPEAK_NODE": sent["node"] or "",
        "TOKENPEAK_TEXT": sent["text"],
    }
    ran = process.run(command, timeout_s=COMMAND_TIMEOUT_S, env=env, given=json.dumps(sent).encode())
    if ran.status != 0:
        raise NotSent(f"it ended with status {ran.status}", again=True)


def _url(receiver: Json) -> str:
    if "webhook_file" in receiver:
        return trust.read_secret(receiver["webhook_file"], "webhook_file").strip()
    return str(receiver["webhook"])


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and text.isprintable()


def main() -> int:
    """Send what standard input says: receivers and an event. What did not get through is on standard error."""
    given = json.load(sys.stdin)
    receivers = given["receivers"]
    ended = send(receivers, given["event"])
    for receiver, problem in zip(receivers, ended):
        if problem is not None:
            print(f"{name_of(receiver)} did not get {given['event']['event']}: {problem}", file=sys.stderr, flush=True)
    return 1 if any(ended) else 0


if __name__ == "__main__":
    sys.exit(main())
