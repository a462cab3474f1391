"""Endpoint: a server to measure as it is, not launched by us: a router, a Kubernetes service, production itself."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from tokenpeak.spec import Declaration

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""Stands for an environment variable of the controller's in a header's value."""
_SECRET_HEADERS = re.compile(r"authorization|cookie|token|secret|api-?key", re.IGNORECASE)


def _url(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{raw!r} is not the URL of a server; write it like http://10.0.0.5:8000/v1")
    if parts.username or parts.password:
        raise ValueError("the URL holds a user or a password, which the archive would keep; use api_key_env")
    return raw.rstrip("/")


def _headers(raw: dict[str, str]) -> dict[str, str]:
    for name, value in raw.items():
        if _SECRET_HEADERS.search(name) and not REFERENCE.search(value):
            raise ValueError(
                f"header {name!r} looks like a secret, and the archive keeps the spec; write ${{NAME}} in its value "
                "and put the secret into that environment variable"
            )
    return raw


Url = Annotated[str, AfterValidator(_url)]


class EndpointSpec(Declaration):
    """An OpenAI-compatible server to measure as it is. Secrets are named here and never written."""

    url: Url
    """With `/v1` or without."""
    model: str = Field(min_length=1)
    """The name that requests ask for."""
    api_key_env: str | None = None
    """An environment variable of the controller's that holds the API key."""
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = {}
    """Sent with every request; `${NAME}` in a value stands for an environment variable."""
    ca_file: str | None = None
    """Certificates to trust besides the system's, such as a server's own."""
    metrics_url: Url | None = None
    """None: /metrics beside the API. A server without one leaves the engine's side out."""
    inventory: str | None = None
    """The inventory of the machines behind it, for their GPUs' names and power; nothing is done to them. Its load
    hosts, where it has some, offer the load."""
    simulated: bool = False
    """A simulation is served there, and its figures are marked so."""

    @property
    def address(self) -> str:
        """Where it is, in a few words without a scheme: what its node is called."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
