"""Served model: whether a server can be reached at all, and the name that its requests are to ask for."""

import asyncio
import socket
import ssl

import httpx

from tokenpeak.errors import InputError, LoadError
from tokenpeak.http_answer import HttpAnswer, HttpAnswerError, ask
from tokenpeak.loadgen.connection_pool import tls_context
from tokenpeak.loadgen.target import Server
from tokenpeak.names import shown

CONNECT_LIMIT_S = 10.0
MODELS = "/v1/models"
_SHOWN = 8
"""Names of served models in a message."""


def reach(server: Server) -> None:
    """Connect once, over TLS where the URL says so; LoadError in one sentence where nothing answers there."""
    try:
        with socket.create_connection((server.host, server.port), CONNECT_LIMIT_S) as connection:
            if server.tls:
                context = tls_context(
                    verify=server.verify, ca_file=None if server.ca_file is None else str(server.ca_file)
                )
                context.wrap_socket(connection, server_hostname=server.host).close()
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
    names = _names(answer)
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


def _names(answer: HttpAnswer) -> list[str]:
    """The ids that the server lists; none for an answer that is no such list."""
    try:
        listed = answer.json()["data"] if answer.status == httpx.codes.OK else []
        return [str(entry["id"]) for entry in listed]
    except (ValueError, KeyError, TypeError):
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
