"""PNG images of noise, as data URLs. Pure; of the standard library alone."""

import base64
import struct
import zlib

import numpy as np

SQUARE = 16
"""Pixels of a side of one colour."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_AS_IT_IS, _LIKE_ABOVE = b"\x00", b"\x02"
"""Filters of a row: its own bytes, or differences to the row above."""


def png(width: int, height: int, random: np.random.Generator) -> bytes:
    """An image of 8-bit RGB, in squares of random colours."""
    columns, rows = -(-width // SQUARE), -(-height // SQUARE)
    colours = random.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    again = _LIKE_ABOVE + bytes(3 * width)
    data = bytearray()
    for row in range(rows):
        data += _AS_IT_IS + np.repeat(colours[row], SQUARE, axis=0)[:width].tobytes()
        data += again * (min(SQUARE, height - row * SQUARE) - 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(data), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def data_url(image: bytes) -> str:
    """An image as the API takes one in a message."""
    return "data:image/png;base64," + base64.b64encode(image).decode()
