"""Payload of a request: head and body, with a salt of its own or with all of its conversation so far."""

import json

from tokenpeak.loadgen.assignment import Conversation, LoadAssignment
from tokenpeak.loadgen.http.connection import Exchange


class ConversationState:
    """A conversation under way: its messages so far."""

    __slots__ = ("conversation", "messages", "turn")

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.turn = 0
        self.messages: list[dict[str, str]] = []
        if conversation.starter:
            self.messages.append({"role": "system", "content": conversation.starter})


def payload(assignment: LoadAssignment, exchange: Exchange) -> bytes:
    """What goes out on the connection for an exchange."""
    conversation = exchange.conversation
    if isinstance(conversation, ConversationState):
        body = _turn_body(assignment, conversation)
    else:
        templates = assignment.templates
        number = (exchange.index - assignment.first) // assignment.stride
        template = templates[number % len(templates)]
        salt = template.salt
        if assignment.resalt and number >= len(templates):
            salt = _salt(assignment.salt_ids, exchange.index, salt)
        body = template.prefix + salt + template.suffix
    return assignment.target.head + b"content-length: %d\r\n\r\n" % len(body) + body


def _turn_body(assignment: LoadAssignment, conversation: ConversationState) -> bytes:
    turn = conversation.conversation.turns[conversation.turn]
    messages = [*conversation.messages, {"role": "user", "content": turn.text}]
    options = dict(assignment.conversation_options or {})
    for key in ("max_tokens", "min_tokens"):
        if key in options:
            options[key] = turn.output_tokens
    return json.dumps({**options, "messages": messages}).encode()


def _salt(ids: tuple[int, ...], index: int, like: bytes) -> bytes:
    """A salt as long as `like`, of this request's own."""
    if not ids:
        return b"%08d " % index
    words = []
    for _ in range(like.count(b",")):
        words.append(b"%d," % ids[index % len(ids)])
        index = index // len(ids) + 7 * len(words)
    return b"".join(words)
