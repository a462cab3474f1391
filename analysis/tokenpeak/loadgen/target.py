"""Target of requests: a base URL, a key and headers as what a connection needs."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tokenpeak.errors import LoadError
from tokenpeak.loadgen.assignment import Target
from tokenpeak.loadgen.connection_pool import tls_context

PATHS = {"completions": "/completions", "chat": "/chat/completions"}


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
        reuse_connections: bool = True,
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
        self.reuse_connections = reuse_connections
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
        """What a worker needs to send requests of an endpoint: `completions` or `chat`."""
        fields = {
            "host": self.netloc,
            "accept": "text/event-stream",
            "content-type": "application/json",
            **self.headers,
            "connection": "keep-alive" if self.reuse_connections else "close",
        }
        lines = [
            f"POST {self.prefix}/v1{PATHS[endpoint]} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        return Target(
            host=self.host,
            port=self.port,
            tls=self.tls,
            verify=self.verify,
            ca_file=None if self.ca_file is None else str(self.ca_file),
            head=("\r\n".join(lines) + "\r\n").encode("latin-1", errors="replace"),
            reuse_connections=self.reuse_connections,
        )

    def trust(self, url: str) -> ssl.SSLContext:
        """What httpx trusts at `url`: the same certificates as the load generator, and none where there is no TLS."""
        if urlsplit(url).scheme != "https":
            # To read the system's certificates takes 20 ms.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return tls_context(verify=self.verify, ca_file=None if self.ca_file is None else str(self.ca_file))

    def client(self) -> httpx.AsyncClient:
        """An httpx client for everything that is not timed; like the load, it goes there without a proxy."""
        return httpx.AsyncClient(
            base_url=self.root, headers=self.headers, verify=self.trust(self.root), timeout=30.0, trust_env=False
        )
