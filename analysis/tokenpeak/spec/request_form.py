"""What requests of a workload have beside a text: a form for the answer, tools, images."""

from typing import Literal

from pydantic import Field, PositiveInt

from tokenpeak.spec import Declaration


class StructuredAnswers(Declaration):
    """Requests whose answer must follow a JSON Schema: `response_format` of the API.

    Such an answer ends where its schema does, so it may be shorter than was asked for, and is no failure for it: these
    requests do without `ignore_eos` and a least length.
    """

    file: str
    """The JSON file that holds the schema."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the requests that ask so; which, the seed says."""


class Tools(Declaration):
    """Requests that offer the model tools to call; the server needs a tool parser.

    A call ends where the model ends it, so these requests do without `ignore_eos` and a least length.
    """

    file: str
    """The JSON file that holds the list of tools, as the API takes it."""
    choice: Literal["auto", "required"] = "auto"
    """`auto`: the model may call one. `required`: it must."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the requests that offer them; which, the seed says."""


class Images(Declaration):
    """Images of noise before the text of each request, or of each turn; no two are alike, so that no cache has them.

    Noise of 16 × 16 pixels: an engine decodes and encodes all pixels, and a request stays small. A run bounded by time
    repeats them after 4,096 requests, as it repeats its texts.
    """

    number: PositiveInt = Field(default=1, le=64)
    """Images of a request."""
    width: PositiveInt = Field(default=512, le=8192)
    """Pixels in a row."""
    height: PositiveInt = Field(default=512, le=8192)
    """Rows."""
