"""Forms of requests: structured answers, tools and images, put into bodies that are made otherwise.

Which requests have a form follows from the workload's seed; images from the run's salt too, where it has one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenpeak import bounded
from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.assignment import Conversation, RequestTemplate, Turn
from tokenpeak.loadgen.images import data_url, png
from tokenpeak.spec.request_form import Images
from tokenpeak.spec.workload import GenerationWorkload

LARGEST_BYTES = 1 << 20
"""Of a schema, or a list of tools."""
UNTIL_ITS_END: Mapping[str, Any] = {"min_tokens": None, "ignore_eos": None}
"""Options that are left out of a request whose answer ends by itself."""
HELD = {"structured": (dict, "a JSON Schema, which is an object"), "tools": (list, "a list of tools")}
_PROMPT = re.compile(rb',"(?:prompt|messages)":')
_MARK = "\u0000"
_MARK_BYTES = json.dumps(_MARK)[1:-1].encode()


def has_form(workload: GenerationWorkload) -> bool:
    """Whether any request of the workload has more than a text."""
    return bool(workload.structured or workload.tools or workload.images)


class RequestForms:
    """The forms of a workload's requests, one after the other; raises WorkloadError where a file is none."""

    def __init__(self, workload: GenerationWorkload, salt: str) -> None:
        self._options: list[tuple[float, dict[str, Any]]] = []
        if workload.structured is not None:
            schema = read_form("structured", workload.structured.file)
            answer = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            self._options.append((workload.structured.share, {"response_format": answer}))
        if workload.tools is not None:
            tools = read_form("tools", workload.tools.file)
            self._options.append((workload.tools.share, {"tools": tools, "tool_choice": workload.tools.choice}))
        self._images = workload.images
        self._which = np.random.default_rng([workload.seed, 0xF0])
        self._noise = np.random.default_rng([workload.seed, *(salt.encode() if workload.salt else b"")])

    def template(self, template: RequestTemplate) -> RequestTemplate:
        """The template in the next request's form."""
        options = self._next_options()
        if self._images is not None:
            template = _with_images(template, list(_image_parts(self._images, self._noise)))
        found = _PROMPT.search(template.prefix)
        if not options or found is None:
            return template
        head = json.loads(template.prefix[: found.start()] + b"}")
        kept = {name: value for name, value in {**head, **options}.items() if value is not None}
        prefix = json.dumps(kept, separators=(",", ":"))[:-1].encode() + template.prefix[found.start() :]
        return replace(template, prefix=prefix)

    def conversation(self, conversation: Conversation) -> Conversation:
        """The conversation with each turn in a form of its own."""
        return replace(conversation, turns=tuple(self._turn(turn) for turn in conversation.turns))

    def _turn(self, turn: Turn) -> Turn:
        messages = [dict(message) for message in turn.messages]
        if self._images is not None:
            _illustrate(messages, list(_image_parts(self._images, self._noise)))
        return replace(turn, messages=tuple(messages), options=self._next_options() or None)

    def _next_options(self) -> dict[str, Any]:
        """The options of the next request; those that are None are left out of it."""
        drawn = [options for share, options in self._options if self._which.random() < share]
        return {name: value for options in (UNTIL_ITS_END, *drawn) for name, value in options.items()} if drawn else {}


def read_form(key: str, file: str) -> Any:
    """What the file of `structured` or `tools` holds; raises WorkloadError where it is none of that."""
    path, (kind, what) = Path(file).expanduser(), HELD[key]
    if not path.is_file():
        raise WorkloadError(f"{path} does not exist; correct its path to {what}.")
    value = bounded.parse_json(bounded.read_bytes(path, LARGEST_BYTES, error=WorkloadError), path, error=WorkloadError)
    if not isinstance(value, kind) or not value:
        raise WorkloadError(f"{path} does not hold {what}.")
    return value


def _image_parts(images: Images, random: np.random.Generator) -> Iterator[dict[str, Any]]:
    for _ in range(images.number):
        url = data_url(png(images.width, images.height, random))
        yield {"type": "image_url", "image_url": {"url": url}}


def _with_images(template: RequestTemplate, parts: Sequence[dict[str, Any]]) -> RequestTemplate:
    """A chat's template with the images, split at its salt again."""
    body = json.loads(template.prefix + _MARK_BYTES + template.suffix)
    _illustrate(body["messages"], parts)
    prefix, suffix = json.dumps(body, separators=(",", ":")).encode().split(_MARK_BYTES, 1)
    return replace(template, prefix=prefix, suffix=suffix)


def _illustrate(messages: list[dict[str, Any]], parts: Sequence[dict[str, Any]]) -> None:
    """Put the images before the text of the last message of a user's; a turn without one has none."""
    for message in reversed(messages):
        if message["role"] == "user":
            content = message.get("content") or ""
            texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["content"] = [*parts, *texts]
            return
