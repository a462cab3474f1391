"""The figures' look: CSS variables for every colour, so that one spec is right in both colour schemes.

Vega passes colours through to the SVG as they are, and a browser resolves `var(--x)` there as anywhere else; the
variables are defined once, in site/static/site.css.
"""

from typing import Any

INK = "var(--ink)"
QUIET = "var(--quiet)"
FAINT = "var(--faint)"
LINE = "var(--line)"
GRID = "var(--grid)"
ACCENT = "var(--accent)"
BAND = "var(--band)"
PAPER = "var(--paper)"
BAD = "var(--bad)"
SERIES = tuple(f"var(--series-{index})" for index in range(1, 9))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DIVERGING = tuple(f"var(--div-{index})" for index in range(9))
"""Nine steps from far worse to far better; the fifth is the baseline's own."""
DIVERGING_INK = tuple(f"var(--div-ink-{index})" for index in range(9))
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH, HALF = 720, 400
"""Of a plot that has a page's width, and of one that stands beside its table."""

CONFIG: dict[str, Any] = {
    "aria": False,
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 16, "right": 16, "top": 4, "bottom": 4},
    "view": {"stroke": None, "continuousWidth": WIDTH},
    "mark": {"color": ACCENT},
    "range": {"category": [*SERIES]},
    "axis": {
        "labelColor": QUIET,
        "titleColor": INK,
        "titleFontWeight": 500,
        "titleFontSize": 12,
        "labelFontSize": 12,
        "domainColor": LINE,
        "tickColor": LINE,
        "gridColor": GRID,
        "titlePadding": 12,
        "labelPadding": 4,
        "tickSize": 4,
    },
    # A first label stands at its tick, and every second one goes where all have no room.
    "axisX": {"labelFlush": False, "labelOverlap": "parity", "labelSeparation": 6, "tickCount": 6},
    "axisY": {"domain": False, "ticks": False},
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "labelFontWeight": 600, "titleFontSize": 12},
    "legend": {
        "labelColor": INK,
        "titleColor": QUIET,
        "titleFontWeight": 500,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "top",
        "symbolSize": 70,
        "labelLimit": 360,
    },
    "text": {"color": INK, "fontSize": 12},
    "title": {"color": INK, "fontSize": 13, "fontWeight": 600, "anchor": "start", "subtitleColor": QUIET},
    "rule": {"color": QUIET},
    "line": {"strokeWidth": 2},
}
