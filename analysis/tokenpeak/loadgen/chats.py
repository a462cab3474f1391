"""Chats of a dataset: rows with `messages`, as logs of OpenAI-compatible servers and files for fine-tuning have them.

The last message of the assistant is the answer that the server gave; what stands before it is asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEPT = ("role", "content", "name", "tool_calls", "tool_call_id")
"""What a message may hold; of others' notes in it (costs, dates, ids) a server knows nothing."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """What a request asked, and the text that answered it; None where the row has no answer."""

    messages: tuple[Mapping[str, Any], ...]
    answer: str | None

    @property
    def text(self) -> str:
        """All that is asked, as one text: its length is the prompt's."""
        return "\n".join(text_of(message) for message in self.messages)


def chat_of(value: object) -> Chat | None:
    """The chat that a list of messages is; None for what is none, or asks nothing in words."""
    if not isinstance(value, list) or not all(_is_message(each) for each in value):
        return None
    messages = [{name: each[name] for name in KEPT if each.get(name) is not None} for each in value]
    last = max((at for at, each in enumerate(messages) if each["role"] == "assistant"), default=len(messages))
    answer = text_of(messages[last]) if last < len(messages) else None
    # A tool's result after the last answer belongs to a request that was not answered yet.
    asked = messages[:last]
    if not asked or not any(text_of(each) for each in asked):
        return None
    return Chat(messages=tuple(asked), answer=answer or None)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part, dict) and "text" in part)


def salted(messages: tuple[Mapping[str, Any], ...], mark: str) -> list[dict[str, Any]]:
    """The messages with `mark` before the first text in them."""
    made = [dict(each) for each in messages]
    for message in made:
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = mark + content
            return made
        parts = [dict(part) for part in content or ()]
        for part in parts:
            if "text" in part:
                part["text"] = mark + part["text"]
                message["content"] = parts
                return made
    return made


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    is_parts = isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in content
    )
    return content is None or isinstance(content, str) or is_parts
