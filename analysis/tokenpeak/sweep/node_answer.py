"""What of a node's answers is not usable, as reasons of a verdict; and an engine's log as a node packs it."""

import base64
import binascii
import zlib

from tokenpeak.node.protocol.answers import FinishAnswer, LaunchAnswer
from tokenpeak.records import Reason

LOG_LIMIT_BYTES = 16 << 20
"""Of an engine's log, unpacked; a node sends 8 MiB at most."""


def unusable_reasons(launch: LaunchAnswer, finish: FinishAnswer) -> tuple[Reason, ...]:
    """Why runs are invalid whose node gave an answer that is not usable as a whole."""
    return tuple(
        Reason(
            code="node_answer",
            text=f"The node's answer to {command} is used only in part: {', '.join(answer.unusable)}.",
        )
        for command, answer in (("launch", launch), ("finish", finish))
        if answer.unusable
    )


def unpacked_log(packed: str) -> str:
    """The text of an engine's log as a node packs it, cut at a bound; raises ValueError for what is no such pack."""
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(packed), LOG_LIMIT_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error
    cut = f"\n[cut at {LOG_LIMIT_BYTES} bytes]\n" if unpacking.unconsumed_tail else ""
    return raw.decode(errors="replace") + cut
