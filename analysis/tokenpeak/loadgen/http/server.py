"""Target of requests: a base URL, a key and headers as what a connection needs."""

import asyncio
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tokenpeak.errors import InputError, LoadError
from tokenpeak.http_answer import HttpAnswer, HttpAnswerError, ask
from tokenpeak.loadgen.assignment import Target
from tokenpeak.loadgen.http.pool import tls_context
from tokenpeak.paths import shown

PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/rerank",
    "score": "/score",
    "classify": "/classify",
}
"""Those of vLLM: what OpenAI's API has not is beside `/v1`, where newer releases warn of it."""
STREAMED = ("completions", "chat")


class Server:
    """An OpenAI-compatible server. `base_url` may end in `/v1` or not; `/metrics` and `/tokenize` are beside `/v1`."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        headers: dict[str, str] | None = None,
        verify: bool = True,
        ca_file: Path | None = None,
    ) -> None:
        parts = urlsplit(base_url if "://" in base_url else f"http://{base_url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoadError(f"{base_url!r} is not the URL of a server; write it like http://10.0.0.5:8000/v1.")
        if parts.username or parts.password:
            raise LoadError("The URL holds a user and password; give a key file or a header instead.")
        self.host = parts.hostname
        self.tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        path = parts.path.rstrip("/")
        self.prefix = path.removesuffix("/v1")
        self.verify = verify
        self.ca_file = ca_file
        self.netloc = parts.netloc
        self.headers = {"user-agent": "tokenpeak", **{k.lower(): v for k, v in (headers or {}).items()}}
        if api_key:
            self.headers["authorization"] = f"Bearer {api_key}"
        for name, value in self.headers.items():
            if "\r" in value or "\n" in value or not name.isascii():
                raise LoadError(f"The header {name!r} holds a line break or is not ASCII.")

    @property
    def root(self) -> str:
        """The server's address with its base path, without `/v1`."""
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.prefix}"

    def target(self, endpoint: str) -> Target:
        """The target of requests of an endpoint of PATHS."""
        fields = {
            "host": self.netloc,
            "accept": "text/event-stream" if endpoint in STREAMED else "application/json",
            "content-type": "application/json",
            **self.headers,
            "connection": "keep-alive",
        }
        lines = [
            f"POST {self.prefix}{PATHS[endpoint]} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        return Target(
            host=self.host,
            port=self.port,
            tls=self.tls,
            verify=self.verify,
            ca_file=None if self.ca_file is None else str(self.ca_file),
            head=("\r\n".join(lines) + "\r\n").encode("latin-1", errors="replace"),
        )

    def trust(self, url: str) -> ssl.SSLContext:
        """Certificates that httpx trusts at `url`: those of the load generator, and none where there is no TLS."""
        if urlsplit(url).scheme != "https":
            # To read the system's certificates takes 20 ms.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return tls_context(verify=self.verify, ca_file=self.ca_file)

    def client(self) -> httpx.AsyncClient:
        """An httpx client for everything that is not timed; like the load, it goes there without a proxy."""
        return httpx.AsyncClient(
            base_url=self.root, headers=self.headers, verify=self.trust(self.root), timeout=30.0, trust_env=False
        )


CONNECT_LIMIT_S = 10.0
MODELS = "/v1/models"
_SHOWN = 8
"""Names of served models in a message."""


def reach(server: Server) -> None:
    """Connect once, over TLS where the URL says so; LoadError in one sentence where nothing answers there."""
    try:
        with socket.create_connection((server.host, server.port), CONNECT_LIMIT_S) as connection:
            if server.tls:
                server.trust(server.root).wrap_socket(connection, server_hostname=server.host).close()
    except OSError as error:
        raise LoadError(f"{server.root} cannot be loaded: {_reason(server, error)}") from error


def served_model(server: Server, given: str | None) -> str:
    """The model that is given, else the one that the server lists; the server has been reached then.

    Raises LoadError where nothing answers, and InputError where the server's list does not decide.
    """
    reach(server)
    if given is not None:
        return given
    try:
        answer = asyncio.run(_ask(server))
    except HttpAnswerError as error:
        raise LoadError(f"{server.root} does not say what it serves: {error}. Give --model.") from error
    if answer.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        is_given = "authorization" in server.headers
        todo = "its file holds another key" if is_given else "give the file that holds it by --api-key-file"
        raise InputError(f"{server.root} asks for an API key ({MODELS} answered {answer.status}): {todo}.")
    names = names_of(answer, are_adapters=False)
    if not names:
        raise InputError(
            f"{server.root} does not say what it serves ({MODELS} answered {answer.status}): give --model."
        )
    if len(names) > 1:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise InputError(f"{server.root} serves {', '.join(names[:_SHOWN])}{more}: choose one by --model.")
    return names[0]


async def _ask(server: Server) -> HttpAnswer:
    async with server.client() as client:
        return await ask(client, MODELS)


def names_of(answer: HttpAnswer, *, are_adapters: bool = True) -> list[str]:
    """The ids that the server lists, or those without a parent alone; none for an answer that is no such list."""
    try:
        listed = answer.json()["data"] if answer.status == httpx.codes.OK else []
        return [str(entry["id"]) for entry in listed if are_adapters or entry.get("parent") is None]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _reason(server: Server, error: OSError) -> str:
    """Why a connection could not be made, and what to do."""
    place = f"{server.host}:{server.port}"
    match error:
        case ConnectionRefusedError():
            return f"nothing listens at {place} (connection refused). Start the server, or correct the URL."
        case socket.gaierror():
            return f"no address is known for the name {server.host}. Correct the URL."
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not trusted ({error.verify_message}). Name its certificate by --ca-file, or give "
                "--insecure."
            )
        case ssl.SSLError():
            return f"{place} speaks no TLS ({error.reason}). Write http:// if it has none."
        case TimeoutError():
            tls = " over TLS" if server.tls else ""
            return f"{place} did not answer{tls} within {CONNECT_LIMIT_S:g} s. Is a firewall in between?"
    return f"{place}: {shown(error.strerror or str(error))}."
