"""Columns of the table of requests, which the load client writes for each trial."""

from typing import Literal, NamedTuple


class RequestColumn(NamedTuple):
    """A column of the table of requests: its type, as the load client writes it, and its meaning."""

    kind: Literal["text", "int32", "int64", "float64", "list of int32"]
    meaning: str


REQUEST_COLUMNS: dict[str, RequestColumn] = {
    "run_index": RequestColumn("int32", "which run of the trial, from 0"),
    "request_index": RequestColumn(
        "int64", "order in which the requests of the run were due, from 0; a search counts on from probe to probe"
    ),
    "phase": RequestColumn(
        "text", "warmup, measured, or probe: of a search for the highest rate, but not the probe that its summary is of"
    ),
    "turn": RequestColumn("int32", "turn of a conversation, from 0; null for single requests"),
    "adapter": RequestColumn(
        "text", "LoRA adapter that was asked, or base; null where the workload names none, and in older files"
    ),
    "due_s": RequestColumn("float64", "when it was due, seconds after the run's start, or the probe's"),
    "sent_s": RequestColumn("float64", "when its first byte was handed to the socket"),
    "first_byte_s": RequestColumn("float64", "when the first byte of the response arrived"),
    "first_token_s": RequestColumn("float64", "when the first event with a token arrived"),
    "last_token_s": RequestColumn(
        "float64", "when the last event with a token arrived; of a pooling model, when its whole answer had"
    ),
    "input_tokens": RequestColumn("int64", "prompt tokens, from usage"),
    "cached_tokens": RequestColumn(
        "int64", "prompt tokens that the engine says came from its prefix cache; null when it does not say"
    ),
    "output_tokens": RequestColumn(
        "int64", "completion tokens, from usage; of a server other than vLLM that sends none, its events with text"
    ),
    "events": RequestColumn("int32", "events that carried tokens"),
    "event_times_us": RequestColumn(
        "list of int32", "microseconds between successive token events, starting from the first token (list)"
    ),
    "first_answer_s": RequestColumn(
        "float64",
        "when the first event with a token of the answer arrived, after a reasoning model's thoughts: the first token "
        "where there were none; null where only thoughts came, and in older files",
    ),
    "status": RequestColumn("int32", "HTTP status; null when no response came"),
    "error": RequestColumn("text", "kind of failure; null when the request ended well"),
}
"""Columns of a trial's requests, in order; the client's table, archives, the database and imports follow from it."""
