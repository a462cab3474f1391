"""Structured answers, tools and images in the bodies of requests; images by a decoder of PNG that shares no code."""

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from loadgen.broken_server import serving
from loadgen.test_generator import CONVERSATION, Listener, measure
from tokenpeak.errors import WorkloadError
from tokenpeak.loadgen.prompts import make
from tokenpeak.loadgen.vocabulary import UNKNOWN
from tokenpeak.spec.workload import Workload

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
SYNTHETIC = {"kind": "synthetic", "name": "x", "input_tokens": 20, "output_tokens": 5}
CHAT = {**SYNTHETIC, "endpoint": "chat"}
FIXED = {"kind": "fixed", "name": "x", "prompt": "Where?", "output_tokens": 5, "endpoint": "chat"}


def declared(workload: dict[str, Any]) -> Workload:
    workload_of: TypeAdapter[Workload] = TypeAdapter(Workload)
    return workload_of.validate_python(workload)


def bodies(workload: dict[str, Any], number: int = 200, salt: str = "s1") -> list[dict[str, Any]]:
    """The bodies of a run's requests."""
    made = make(declared(workload), "m", UNKNOWN, number=number, seed=0, salt=salt)
    return [json.loads(each.prefix + each.salt + each.suffix) for each in made.templates]


def written(folder: Path, value: object) -> str:
    path = folder / "form.json"
    path.write_text(json.dumps(value))
    return str(path)


def decoded(image: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of an 8-bit RGB image, by the W3C's specification; checksums are checked."""
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    place, data, size = 8, b"", (0, 0)
    while place < len(image):
        length, name = struct.unpack(">I4s", image[place : place + 8])
        content = image[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", image[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(name + content)
        if name == b"IHDR":
            assert (8, 2, 0, 0, 0) == struct.unpack(">8x5B", content)
            size = struct.unpack(">2I5x", content)
        data += content if name == b"IDAT" else b""
        place += 12 + length
    raw, rows = zlib.decompress(data), [bytes(3 * size[0])]
    for row in range(size[1]):
        line = raw[row * (1 + 3 * size[0]) : (row + 1) * (1 + 3 * size[0])]
        assert line[0] in (0, 2)
        above = rows[-1] if line[0] == 2 else bytes(3 * size[0])
        rows.append(bytes((value + before) % 256 for value, before in zip(line[1:], above, strict=True)))
    return (*size, rows[1:])


def images(messages: list[dict[str, Any]]) -> list[bytes]:
    """The images of a user's message, which stand before its text."""
    *parts, text = messages[-1]["content"]
    assert "text" == text["type"]
    urls = [part["image_url"]["url"] for part in parts]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True) for url in urls]


@pytest.mark.parametrize("workload", [SYNTHETIC, CHAT, FIXED], ids=["completions", "chat", "one prompt"])
def test_a_share_of_answers_follows_a_schema(workload: dict[str, Any], tmp_path: Path) -> None:
    """About that share, the same requests in each run; they may end early, the others are as long as asked for."""
    structured = {"structured": {"file": written(tmp_path, SCHEMA), "share": 0.3}}
    asked = [bodies({**workload, **structured}, salt=salt) for salt in ("s1", "s2")]
    which = [["response_format" in body for body in run] for run in asked]

    assert 0.2 < sum(which[0]) / 200 < 0.4
    assert which[0] == which[1]
    for body, is_structured in zip(asked[0], which[0], strict=True):
        assert 5 == body["max_tokens"]
        assert is_structured != ("ignore_eos" in body and "min_tokens" in body)
        assert body.get("response_format", {"json_schema": {"schema": SCHEMA}})["json_schema"]["schema"] == SCHEMA


def test_a_body_is_otherwise_as_without_a_form(tmp_path: Path) -> None:
    """Prompt, salt and options are those of the workload without a form."""
    plain, (formed,) = (
        bodies(SYNTHETIC, 1)[0],
        bodies({**SYNTHETIC, "structured": {"file": written(tmp_path, SCHEMA)}}, 1),
    )
    added = {name: formed.pop(name) for name in ("response_format",)}

    assert formed == {name: value for name, value in plain.items() if name not in ("min_tokens", "ignore_eos")}
    assert {"response_format"} == added.keys()


def test_tools_are_offered_in_turns_of_chats(tmp_path: Path) -> None:
    """Each turn of a conversation offers them, and its body is what a server can read."""
    listener = Listener()
    tools = {"tools": {"file": written(tmp_path, TOOLS), "choice": "required"}}
    with serving(listener) as url:
        measure(url, tmp_path, {"concurrency": 1, "requests": 3}, {**CONVERSATION, **tools})

    for body in listener.bodies():
        assert (TOOLS, "required", 3) == (body["tools"], body["tool_choice"], body["max_tokens"])
        assert not {"min_tokens", "ignore_eos"} & body.keys()
    assert 3 == len(listener.bodies())


@pytest.mark.parametrize("workload", [CHAT, FIXED], ids=["made", "one prompt"])
@pytest.mark.parametrize("size", [(512, 512), (100, 33), (1, 1)])
def test_images_are_noise_of_their_size(workload: dict[str, Any], size: tuple[int, int]) -> None:
    """Every image decodes to its size, is small, and is no other one's, of another run's neither."""
    given = {**workload, "images": {"number": 2, "width": size[0], "height": size[1]}}
    found = [image for salt in ("s1", "s2") for body in bodies(given, 3, salt) for image in images(body["messages"])]

    assert {size} == {decoded(image)[:2] for image in found}
    assert all(len(row) == 3 * size[0] for image in found for row in decoded(image)[2])
    assert max(map(len, found)) < 12_000
    assert size == (1, 1) or 12 == len({b"".join(decoded(image)[2]) for image in found})


def test_a_repeat_of_a_prompt_with_an_image_has_a_salt_of_its_own() -> None:
    """The salt stands in the text behind the images, where it stood."""
    (made,) = make(declared({**CHAT, "images": {}}), "m", UNKNOWN, number=1, seed=0, salt="s").templates
    text = json.loads(made.prefix + b"OTHER " + made.suffix)["messages"][0]["content"][-1]["text"]

    assert text.startswith("OTHER ")


def test_images_in_turns_of_chats(tmp_path: Path) -> None:
    """Each turn brings one more image, and those before it again."""
    listener = Listener()
    with serving(listener) as url:
        measure(url, tmp_path, {"concurrency": 1, "requests": 3}, {**CONVERSATION, "images": {"width": 32}})

    shown = [[len(images([each])) for each in body["messages"] if each["role"] == "user"] for body in listener.bodies()]
    assert [[1], [1, 1], [1, 1, 1]] == shown


@pytest.mark.parametrize(
    ("form", "held", "words"),
    [
        ("structured", [1], "does not hold a JSON Schema, which is an object"),
        ("tools", {}, "does not hold a list of tools"),
    ],
)
def test_a_file_that_holds_no_form(form: str, held: object, words: str, tmp_path: Path) -> None:
    """The file is named with what it should hold; one that is missing, too."""
    workload = {**CHAT, form: {"file": written(tmp_path, held)}}
    with pytest.raises(WorkloadError, match=words):
        bodies(workload, 1)
    (tmp_path / "form.json").unlink()
    with pytest.raises(WorkloadError, match="does not exist"):
        bodies(workload, 1)


@pytest.mark.parametrize("form", ["tools", "images"])
def test_what_only_chats_have(form: str) -> None:
    """A completion has no tools and no images."""
    with pytest.raises(ValidationError, match=f"{form} need endpoint: chat"):
        declared({**SYNTHETIC, form: {"file": "x"} if form == "tools" else {}})
