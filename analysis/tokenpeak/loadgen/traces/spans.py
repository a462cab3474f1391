"""Documents with rows deeper inside: OpenTelemetry's spans in OTLP's JSON, GuideLLM's reports, observed traffic."""

from collections.abc import Iterator, Mapping
from typing import Any

from tokenpeak.loadgen.traces.formats import at

TRAFFIC = "tokenpeak_traffic"
"""Marks what `tokenpeak observe` wrote."""
VALUES = ("stringValue", "intValue", "doubleValue", "boolValue")


def rows_within(document: object) -> Iterator[Mapping[str, Any]]:
    """The rows of a document; one that holds none is a row itself."""
    if not isinstance(document, Mapping):
        return
    if "resourceSpans" in document:
        yield from _spans(document)
    elif "benchmarks" in document:
        for benchmark in _list(document["benchmarks"]):
            yield from (row for row in _list(at(benchmark, "requests/successful")) if isinstance(row, Mapping))
    elif TRAFFIC in document:
        yield from (row for row in _list(document.get("requests")) if isinstance(row, Mapping))
    else:
        yield document


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _spans(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Spans with their attributes beside their own keys; others than a model's answers are left out."""
    for resource in _list(document["resourceSpans"]):
        for scope in _list(at(resource, "scopeSpans")):
            for span in _list(at(scope, "spans")):
                attributes = {
                    str(each.get("key")): _value(each.get("value"))
                    for each in _list(at(span, "attributes"))
                    if isinstance(each, Mapping)
                }
                if isinstance(span, Mapping) and "gen_ai.usage.output_tokens" in attributes:
                    yield {**span, **attributes}


def _value(value: object) -> Any:
    return next((value[kind] for kind in VALUES if kind in value), None) if isinstance(value, Mapping) else None
