"""The answer that production must give before it counts as restored, as `tokenpeak_production` declares it.

`answers_with`: completion (the default; of a server of chat models, a chat), chat, embedding, rerank, health (200 of
/health), or command (status 0 of `answer_command`, for a server that speaks no HTTP). `ca_file` names the certificates
that an https url is trusted by, in place of the system's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, NamedTuple

from tokenpeak.node.engine import serving
from tokenpeak.node.engine.serving import ServerAnswer
from tokenpeak.node.machine import process, trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.state import Json
from tokenpeak.node.machine.words import shown_answer, shown_command, shown_output, shown_value
from tokenpeak.node.production.identity import Check, ForeignServerError

DEFAULT = "completion"
WITHOUT_MODEL = ("health", "command")
KINDS = (DEFAULT, "chat", "embedding", "rerank", *WITHOUT_MODEL)


class Answering:
    """How one production is asked; raises ScriptError for a declaration that cannot be carried out."""

    def __init__(self, declared: Json) -> None:
        self.kind = str(declared.get("answers_with") or DEFAULT)
        if self.kind not in KINDS:
            raise ScriptError(
                "declaration",
                f"tokenpeak_production.answers_with is {shown_value(self.kind)}: give one of {', '.join(KINDS)}.",
            )
        self.url: str | None = declared.get("url")
        self._ca_file: str | None = declared.get("ca_file")
        self.command = [str(word) for word in declared.get("answer_command") or []]
        if self.kind == "command" and not self.command:
            raise ScriptError(
                "declaration",
                "tokenpeak_production.answers_with is command, and answer_command is missing: give the list of "
                "arguments of a program that ends with status 0 once production serves.",
            )
        # Whoever writes what an https server is trusted by could pass for production.
        trusted = [Path(str(self._ca_file))] if self._ca_file else []
        trust.require_only_root("tokenpeak_production", [*trust.files_of_command(self.command), *trusted])
        self.can_be_asked = self.kind == "command" or bool(self.url)
        """Else only its state is known."""
        self.names_model = self.kind not in WITHOUT_MODEL
        """It is asked which model it serves."""
        self._key_file: str | None = declared.get("api_key_file")

    def is_there(self, check: Check) -> bool:
        """Whether anything that `check` lets pass answers at its url. It hears no key."""
        if not self.url:
            return False
        try:
            answer = serving.request(f"{self.url}/v1/models", timeout_s=2, check=check, ca_file=self._ca_file)
        except ForeignServerError:
            return False
        return answer.status != 0

    def served_model(self, check: Check, timeout_s: float = 5.0) -> str | None:
        """The model that it names; None where it names none, or is not asked. Its key is sent after `check`."""
        if not (self.names_model and self.url):
            return None
        return serving.served_model(self.url, self._key(), timeout_s, check, self._ca_file)

    def wrong(self, model: str | None, check: Check, timeout_s: float = 60.0) -> str | None:
        """None when it gave a real answer, by this model where it names one; otherwise what came instead."""
        if self.kind == "command":
            done = process.run(self.command, timeout_s=timeout_s)
            if done.status == 0:
                return None
            ending = f"{shown_command(self.command[:1])} ended with status {done.status}"
            return f"{ending}: {shown_output(done.err or done.out)}"
        if self.kind == "health":
            answer = self._request("/health", timeout_s=timeout_s, check=check)
            return None if answer.status == 200 else _refused(answer)
        if self.kind == "embedding":
            body: Json = {"model": model, "input": "The"}
            return self._asked("/v1/embeddings", body, model, check, timeout_s, _embedding)
        if self.kind == "rerank":
            body = {"model": model, "query": "The", "documents": ["The", "A"]}
            return self._asked("/v1/rerank", body, model, check, timeout_s, _rerank)
        ask = serving.complete_chat if self.kind == "chat" else serving.complete
        return ask(str(self.url), str(model), self._key(), timeout_s, check, self._ca_file)

    def _asked(
        self,
        path: str,
        body: Json,
        model: str | None,
        check: Check,
        timeout_s: float,
        is_answer: Callable[[Any], bool],
    ) -> str | None:
        """None when the answer to a question is what it should be; otherwise what came instead."""
        answer = self._request(path, body, timeout_s, check)
        if answer.status != 200:
            return _refused(answer)
        try:
            content = serving.parsed(answer.text)
            is_real, author = is_answer(content), content.get("model", model)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            is_real, author = False, model
        if not is_real:
            return f"an answer that is no {self.kind}: {shown_answer(answer.text)}"
        return None if author == model else f"an answer by {shown_value(str(author))}, not {shown_value(model)}"

    def _request(
        self, path: str, body: Json | None = None, timeout_s: float = 5.0, check: Check | None = None
    ) -> ServerAnswer:
        method = "GET" if body is None else "POST"
        # Whoever has the port hears the key only after a check of who that is.
        key = None if check is None else self._key()
        return serving.request(f"{self.url}{path}", method, body, key, timeout_s, check, self._ca_file)

    def _key(self) -> str | None:
        return serving.key_from_file(self._key_file)


def _embedding(content: Any) -> bool:
    vector = content["data"][0]["embedding"]
    return bool(vector) and all(isinstance(value, (int, float)) for value in vector)


def _rerank(content: Any) -> bool:
    scores = [each["relevance_score"] for each in content["results"]]
    return bool(scores) and all(isinstance(score, (int, float)) for score in scores)


def _refused(answer: ServerAnswer) -> str:
    return f"HTTP {answer.status}: {shown_answer(answer.text)}" if answer.status else answer.text


class Shortfall(NamedTuple):
    """Why production is not as it was; where not `is_known`, it could not be looked at."""

    text: str
    is_known: bool = True
    other_model: str | None = None
    """The model that it serves, well, in place of the recorded model."""

    def words(self, was_model: str | None) -> str:
        """The problem, and where production serves another model than `was_model`, how that is accepted."""
        if self.other_model is None:
            return self.text
        return (
            f"{self.text} It served {shown_value(was_model)} when it was recorded, and answers well by "
            f"{shown_value(self.other_model)} now: somebody has changed it since. If that is meant, `tokenpeak restore "
            "--accept` takes it as it is; if not, mend its definition and start it again."
        )


def standing(restored: bool | None) -> str:
    """How production stands after it was given back, before the reason: what is not known is not called down."""
    if restored is None:
        return "whether production is back is not known"
    return "production is back" if restored else "production is not back"


def is_restored(wrong: Shortfall | None, *, engine_stopped: bool = True) -> bool | None:
    """Whether production is as it was, with nothing of the engine left; None where that is not known."""
    if wrong is not None and not wrong.is_known and engine_stopped:
        return None
    return wrong is None and engine_stopped
