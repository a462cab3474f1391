"""Answers of an OpenAI-compatible server on this machine: health, model, a real completion, and its metrics page."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import ssl
import threading
from contextlib import closing
from typing import Any, Callable, Dict, List, NamedTuple, Tuple
from urllib.parse import urlsplit

from tokenpeak.node.machine import trust
from tokenpeak.node.machine.error import ScriptError
from tokenpeak.node.machine.words import shown_answer, shown_output, shown_value

Check = Callable[[socket.socket], None]
"""Raises ForeignServerError unless the other end of a connection is who should answer."""
ANSWER_LIMIT_BYTES = 1 << 20
VERSION_LIMIT = 100
"""Characters of a version; anything longer is none."""
KEY_FILE = "tokenpeak_production.api_key_file"
ENDING_S = 5.0
"""A server that answers has this much longer than it has for each part of its answer."""


class ForeignServerError(ScriptError):
    """Somebody else answers at an address."""

    def __init__(self, text: str) -> None:
        super().__init__("stranger", text)


class ServerAnswer(NamedTuple):
    """A response: status 0 when no connection or no whole answer came, then `text` says why."""

    status: int
    text: str


def request(
    url: str,
    method: str = "GET",
    body: dict[str, Any] | None = None,
    key: str | None = None,
    timeout_s: float = 5.0,
    check: Check | None = None,
    ca_file: str | None = None,
) -> ServerAnswer:
    """One request, one answer; a server that is not there, or whose answer has no end, is an answer too.

    An https server is trusted by `ca_file`, else by the system's certificates. `check` sees the
    connection before anything is sent on it, and raises ForeignServerError for another's server: where a name has
    several addresses, anybody may listen at one that the server does not use, so each is tried.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ScriptError(
            "declaration", f"{shown_value(url)} is no address of a server: write it like http://127.0.0.1:8000."
        )
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    context: ssl.SSLContext | None = None
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            return ServerAnswer(0, f"its ca_file {ca_file} cannot be used: {error}")
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key and not is_key(key):
        # http.client's own refusal repeats it.
        raise ScriptError("declaration", "The API key is no single word of printable characters, so it is not sent.")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    # The request goes out on the connection that was checked: none is opened anew behind our back.
    connection.auto_open = 0
    overdue: threading.Timer | None = None
    try:
        connection.sock = _connected(connection.host, connection.port, timeout_s, check)
        # The check is no time of the server's: it looks through what the users of this machine have open.
        overdue = _hung_up_after(timeout_s + ENDING_S, connection)
        if context is not None:
            connection.sock = context.wrap_socket(
                connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
            )
            connection.sock.do_handshake()
        connection.request(method, parts.path or "/", None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        content = response.read(ANSWER_LIMIT_BYTES + 1)
        if len(content) > ANSWER_LIMIT_BYTES:
            return ServerAnswer(0, f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
        if overdue.finished.is_set():
            return ServerAnswer(0, f"an answer that was not whole after {timeout_s + ENDING_S:g} s")
        return ServerAnswer(response.status, content.decode(errors="replace"))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return ServerAnswer(0, shown_output(str(error) or type(error).__name__))
    finally:
        if overdue is not None:
            overdue.cancel()
        connection.close()


def strangers(url: str, check: Check) -> list[str]:
    """The refusal of `check` for each who answers at one of several addresses of a url and is not who should."""
    parts = urlsplit(url)
    refusals = []
    try:
        addresses = _addresses(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except OSError:
        return []
    for address in addresses if len(addresses) > 1 else ():
        try:
            with closing(socket.create_connection(address, 2.0)) as connection:
                check(connection)
        except ForeignServerError as stranger:
            refusals.append(stranger.text)
        except (OSError, ScriptError):
            continue
    return refusals


def _addresses(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses of a name, in the order in which they are tried."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # In figures, with the interface that a link-local one is of.
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return list(dict.fromkeys((socket.getnameinfo(address, numeric)[0], port) for _, _, _, _, address in entries))


def _connected(host: str, port: int, timeout_s: float, check: Check | None) -> socket.socket:
    """A connection to the first of its addresses where who should answer does; raises what the first said otherwise."""
    stranger: ForeignServerError | None = None
    refusal: OSError | None = None
    for address in _addresses(host, port):
        try:
            connection = socket.create_connection(address, timeout_s)
        except OSError as error:
            refusal = refusal or error
            continue
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if check is not None:
                check(connection)
        except ForeignServerError as error:
            connection.close()
            stranger = stranger or error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise stranger or refusal or OSError(f"{host} has no address")


def _hung_up_after(seconds: float, connection: http.client.HTTPConnection) -> threading.Timer:
    """A timer that ends a request which takes longer, unless it is cancelled."""
    overdue = threading.Timer(seconds, _hang_up, [connection])
    overdue.daemon = True
    overdue.start()
    return overdue


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End a request that takes too long; whoever waits for its answer then sees the connection's end."""
    try:
        connection.sock.shutdown(socket.SHUT_RDWR)
    except (OSError, AttributeError):
        return  # it has ended by itself


def parsed(text: str) -> Any:
    """The JSON of an answer; raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def base_url(host: str, port: int) -> str:
    """The address of a server; IPv6 addresses in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def served_model(
    url: str,
    key: str | None = None,
    timeout_s: float = 5.0,
    check: Check | None = None,
    ca_file: str | None = None,
) -> str | None:
    """The first model that `/v1/models` names; None when none is served."""
    answer = request(f"{url}/v1/models", key=key, timeout_s=timeout_s, check=check, ca_file=ca_file)
    try:
        model = parsed(answer.text)["data"][0]["id"] if answer.status == 200 else None
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return model[:300] if isinstance(model, str) else None


def is_healthy(url: str, key: str | None, check: Check | None = None) -> bool:
    """Whether a server says by `/health` that it is up; of one that has no such page, whether it lists its models."""
    status = request(f"{url}/health", timeout_s=2.0, check=check).status
    if status == http.client.NOT_FOUND:
        status = request(f"{url}/v1/models", key=key, timeout_s=2.0, check=check).status
    return status == http.client.OK


def reported_version(url: str, key: str | None = None, check: Check | None = None) -> str | None:
    """The version of vLLM that `/version` reports; None of a server that reports none."""
    answer = request(f"{url}/version", key=key, check=check)
    try:
        version = parsed(answer.text)["version"] if answer.status == 200 else None
    except (ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) and 0 < len(version) <= VERSION_LIMIT else None


def complete(
    url: str,
    model: str,
    key: str | None = None,
    timeout_s: float = 60.0,
    check: Check | None = None,
    ca_file: str | None = None,
) -> str | None:
    """None when `model` gave a real completion, or a pooling model its answer; otherwise what came instead."""
    # Several tokens: vLLM 0.32's worker dies on a CPU with AMX, run eagerly, when its first prompt is one token alone.
    body = {"model": model, "prompt": "The first words of", "max_tokens": 1, "temperature": 0}
    answer = request(f"{url}/v1/completions", "POST", body, key, timeout_s, check, ca_file)
    if answer.status == 404 and served_model(url, key, check=check, ca_file=ca_file) == model:
        # A server of chat models only, or of a pooling model, which generates nothing.
        wrong = complete_chat(url, model, key, timeout_s, check, ca_file)
        return None if wrong is None or pools(url, model, key, timeout_s, check, ca_file) else wrong
    return _no_completion(answer, model)


def complete_chat(
    url: str,
    model: str,
    key: str | None = None,
    timeout_s: float = 60.0,
    check: Check | None = None,
    ca_file: str | None = None,
) -> str | None:
    """None when `model` gave a real completion of a chat; otherwise what came instead."""
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0}
    return _no_completion(request(f"{url}/v1/chat/completions", "POST", body, key, timeout_s, check, ca_file), model)


POOLING: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("/v1/embeddings", "data", {"input": "The"}),
    ("/classify", "data", {"input": "The"}),
    ("/score", "data", {"text_1": "The", "text_2": "A"}),
    ("/pooling", "data", {"input": "The"}),
)
"""Endpoints of pooling models, with the key of the results and a question."""


def pools(
    url: str,
    model: str,
    key: str | None = None,
    timeout_s: float = 60.0,
    check: Check | None = None,
    ca_file: str | None = None,
) -> bool:
    """Whether `model` gave a real answer at an endpoint of pooling models."""
    for path, results, body in POOLING:
        answer = request(f"{url}{path}", "POST", {"model": model, **body}, key, timeout_s, check, ca_file)
        try:
            content = parsed(answer.text) if answer.status == 200 else {}
            if content.get(results) and content.get("model", model) == model:
                return True
        except (ValueError, AttributeError):
            continue
    return False


def _no_completion(answer: ServerAnswer, model: str) -> str | None:
    """The answer that came instead of a completion by `model`; None when it is one."""
    if answer.status != 200:
        return f"HTTP {answer.status}: {shown_answer(answer.text)}" if answer.status else answer.text
    try:
        body = parsed(answer.text)
        choices, model_said = body["choices"], body.get("model", model)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"an answer that is no completion: {shown_answer(answer.text)}"
    if not choices:
        return f"a completion without choices: {shown_answer(answer.text)}"
    if model_said != model:
        return f"a completion by {shown_value(str(model_said))}, not {shown_value(model)}"
    return None


def key_from_file(path: str | None) -> str | None:
    """The API key in a file that only its owner can read, else ScriptError; None when no file is named."""
    if not path:
        return None
    key = trust.read_secret(path, KEY_FILE).strip()
    if not is_key(key):
        raise ScriptError(
            "rights", f"{KEY_FILE} is {path}, which holds no key: put the key there, one word of printable characters."
        )
    return key


def is_key(text: str) -> bool:
    """Whether a text can be sent as a key: one word of printable characters."""
    return bool(re.fullmatch("[!-~]+", text))


PAGE_TIMEOUT_S = 5.0
VALUE_LIMIT = 1e15
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')

Labels = Dict[str, str]
MetricsPage = Dict[str, List[Tuple[Labels, float]]]


def parse_metrics(text: str) -> MetricsPage:
    """Samples by name; a line that is none, or whose value is no count, is left out."""
    page: MetricsPage = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if sample is None:
            continue
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if math.isfinite(value) and 0 <= value <= VALUE_LIMIT:
            page.setdefault(sample[1], []).append((dict(_LABEL.findall(sample[2] or "")), value))
    return page


def metric_total(samples: MetricsPage, name: str) -> float | None:
    """The sum over all labels; None where the page has no such metric."""
    series = samples.get(name)
    return sum(value for _, value in series) if series else None


def read_metrics(url: str, check: Check | None = None, ca_file: str | None = None) -> MetricsPage | None:
    """The samples of `url`/metrics now; None where there is no such page, or `check` refuses who answers."""
    try:
        answer = request(f"{url}/metrics", timeout_s=PAGE_TIMEOUT_S, check=check, ca_file=ca_file)
    except ForeignServerError:
        return None
    return parse_metrics(answer.text) if answer.status == 200 else None
