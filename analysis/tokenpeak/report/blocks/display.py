"""MIME bundles of blocks: what Jupyter, VS Code, nbconvert and GitHub show of what a notebook displays.

A bundle has the site's own block and a short `text/plain`. Beside them a figure has Vega-Lite, which answers the
pointer, and its picture for front ends without; any other block has HTML. JupyterLab would prefer a figure's HTML, so
it has none. Its Vega-Lite is of version 5, the newest that JupyterLab 4.6 knows, and that VS Code shows too.
"""

import json
import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from tokenpeak import paths

PACKED_FROM = 20
"""Rows of a data set from which on it is packed; a small one stays readable in the page's source."""
_DRAWN_AT = re.compile(r' (?:d|transform|[xy][12]?|width|height)="[^"]*\.\d{3}[^"]*"')
_FRACTION = re.compile(r"-?\d{1,20}\.\d{3,}(?:e-?\d{1,4})?")
_DEFAULT_OPACITY = ' opacity="1"'


def packed_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with each long data set column by column, as `unpacked` of the page's script reads it."""
    named = spec.get("datasets")
    return {**spec, "datasets": {name: packed_rows(rows) for name, rows in named.items()}} if named else spec


def packed_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, Any]:
    """`{"rows": their number, "columns": {key: values}}`; the rows themselves where they are few or unlike.

    Values that recur are `{"of": [each once], "at": [place of each row]}`, without `at` where all are the same.
    """
    if len(rows) < PACKED_FROM or any(row.keys() != rows[0].keys() for row in rows):
        return rows
    return {"rows": len(rows), "columns": {key: _column([row[key] for row in rows]) for key in rows[0]}}


def _column(values: list[Any]) -> list[Any] | dict[str, list[Any]]:
    if any(isinstance(value, list | dict) for value in values):
        return values
    # 1, 1.0 and True are one key of a mapping, and three values of a column.
    places: dict[tuple[type, Any], int] = {}
    at = [places.setdefault((type(value), value), len(places)) for value in values]
    if len(places) > len(values) / 2:
        return values
    of = [value for _, value in places]
    return {"of": of} if len(of) == 1 else {"of": of, "at": at}


def sortable(value: float) -> str:
    """A cell's value for sorting and filtering, whose text has fewer digits: seven significant ones; integers whole."""
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def light_picture(svg: str) -> str:
    """The picture with coordinates to a hundredth of a pixel and without opacities that are there anyway."""
    return _DRAWN_AT.sub(lambda found: _FRACTION.sub(_hundredths, found[0]), svg).replace(_DEFAULT_OPACITY, "")


def _hundredths(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


BLOCK_MIME = "application/vnd.tokenpeak.block.v1+json"
VEGALITE = "6.4"
VEGALITE_MIME = "application/vnd.vegalite.v5+json"
CAPTION = 100
"""Characters in a line of a figure's caption below its title."""
HATCH = "hatch"
KEPT = 64
"""Most pictures kept: a page draws what its notebook has just shown."""
ROOM = 48
"""Pixels left and right of a picture: a reader's font may be a tenth wider than the one that it was laid out by."""
_SIZE = re.compile(r'(<svg [^<>]*?) width="([\d.]+)" height="([\d.]+)" viewBox="0 0 [\d.]+ [\d.]+">')
_COLOUR = re.compile(r"(--[\w-]{1,40}):\s{0,4}(#[0-9a-fA-F]+)")
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")


def bundle(payload: dict[str, Any], words: str) -> dict[str, Any]:
    """The MIME bundle of a block; `words` is the block as plain text. A figure without rows is a sentence."""
    if payload["kind"] == "figure" and is_empty(payload["spec"]):
        words = f"{payload['title']}: its data have no rows, so nothing is drawn."
        payload = {"kind": "sentence", "parts": [words], "tone": "note"}
    if payload["kind"] != "figure":
        return {"text/html": html(payload), BLOCK_MIME: payload, "text/plain": words}
    return {
        VEGALITE_MIME: interactive(payload),
        "image/svg+xml": standalone(svg(payload["spec"])),
        BLOCK_MIME: payload,
        "text/plain": words,
    }


def is_empty(spec: dict[str, Any]) -> bool:
    """Whether every data set of a chart is empty; vega would draw it without bounds."""
    data = spec.get("data") or {}
    sets = [*spec.get("datasets", {}).values(), *([data["values"]] if "values" in data else [])]
    return bool(sets) and not any(sets)


def html(payload: dict[str, Any]) -> str:
    """The block as HTML without style of its own: the front end's is light or dark."""
    return _template().render(block=payload).strip()


def interactive(payload: dict[str, Any]) -> dict[str, Any]:
    """The figure's specification for a front end: in the light scheme's colours, with title, caption and tooltips.

    Where it is a single plot, dragging and the wheel move its axes.
    """
    colours = light_colours()
    text = _VARIABLE.sub(lambda found: colours.get(found[1], found[0]), json.dumps(payload["spec"]))
    spec: dict[str, Any] = json.loads(text.replace(f"url(#{HATCH})", colours["--line"]))
    theme = spec.get("config", {})
    marks = {**theme.get("mark", {}), "tooltip": {"content": "encoding"}}
    plot = spec.get("layer", [spec])[0]
    if "mark" in plot:
        plot["params"] = [*plot.get("params", ()), {"name": "moved", "select": "interval", "bind": "scales"}]
    caption = textwrap.wrap(payload["caption"], CAPTION)
    return {
        **spec,
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": {**theme, "background": colours["--paper"], "mark": marks},
        "title": {"text": payload["title"], "subtitle": caption, "anchor": "start"},
    }


def svg(spec: dict[str, Any]) -> str:
    """The specification drawn, with the site's variables for colours; made without a network."""
    return _drawn(json.dumps(spec))


@lru_cache(maxsize=KEPT)
def _drawn(spec: str) -> str:
    drawn: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)
    # A policy that forbids inline styles would refuse these; vega writes them for the pointer only.
    return light_picture(re.sub(r' style="[^"]*"', "", drawn))


def standalone(picture: str) -> str:
    """The picture with the light scheme's colours on paper of its own, to be read on a light or a dark page."""
    defs = f"<defs>{_HATCHING}</defs>" if f"url(#{HATCH})" in picture else ""

    def on_paper(found: re.Match[str]) -> str:
        width, height = float(found[2]) + 2 * ROOM, float(found[3])
        box = f'viewBox="{-ROOM} 0 {width:g} {height:g}"'
        paper = f'<rect x="{-ROOM}" width="{width:g}" height="{height:g}" rx="4" fill="var(--paper)"/>'
        return f'{found[1]} width="{width:g}" height="{height:g}" {box}>{defs}{paper}'

    framed, count = _SIZE.subn(on_paper, picture, count=1)
    assert count == 1, "vega writes a picture's size as width, height and viewBox"
    colours = light_colours()
    # A label may say `var(--x)` itself.
    return _VARIABLE.sub(lambda found: colours.get(found[1], found[0]), framed)


_HATCHING = (
    f'<pattern id="{HATCH}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="7" height="7" fill="var(--paper)"/>'
    '<line x1="0" y1="0" x2="0" y2="7" stroke="var(--line)" stroke-width="3"/></pattern>'
)


@lru_cache
def light_colours() -> dict[str, str]:
    """The light scheme's colours by the name of their variable, as the site's style sheet has them."""
    _, _, light = (paths.STATIC / "site.css").read_text().partition(":root {")
    assert light, "site.css begins with the light scheme"
    return dict(_COLOUR.findall(light.partition("}")[0]))


def jinja_environment(templates: Path) -> jinja2.Environment:
    """An environment with autoescape on, in which an undefined name is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache
def _template() -> jinja2.Template:
    return jinja_environment(paths.TEMPLATES).get_template("notebook.html")
