"""The bytes of a request: its head and its body, with a salt of its own or with all that its conversation has said."""

import json

from tokenpeak.load.connection import Exchange
from tokenpeak.load.order import Order, Talk


class Conversation:
    """A talk under way: what has been said so far."""

    __slots__ = ("messages", "talk", "turn")

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.turn = 0
        self.messages: list[dict[str, str]] = []
        if talk.starter:
            self.messages.append({"role": "system", "content": talk.starter})


def payload(order: Order, exchange: Exchange) -> bytes:
    """What goes out on the connection for an exchange."""
    conversation = exchange.talk
    if isinstance(conversation, Conversation):
        body = _said(order, conversation)
    else:
        number = (exchange.index - order.first) // order.stride
        ask = order.asks[number % len(order.asks)]
        salt = ask.salt
        if order.resalt and number >= len(order.asks):
            salt = _salt(order.salt_ids, exchange.index, salt)
        body = ask.prefix + salt + ask.suffix
    return order.target.head + b"content-length: %d\r\n\r\n" % len(body) + body


def _said(order: Order, conversation: Conversation) -> bytes:
    turn = conversation.talk.turns[conversation.turn]
    messages = [*conversation.messages, {"role": "user", "content": turn.text}]
    options = dict(order.talk_options or {})
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
