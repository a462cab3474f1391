"""What built pages say: sentences and cards as text, with code in ⟦brackets⟧."""

import html
import re
from dataclasses import dataclass
from pathlib import Path

_PATTERNS = {
    "sentence": r'<p class="sentence [^"]*">(.*?)</p>',
    "tile": r'<div class="tile[^"]*">(.*?)</dd></div>',
}


@dataclass(frozen=True)
class Said:
    """One text of a page: of which kind, on which page."""

    page: str
    kind: str
    text: str


def texts(page: Path) -> list[Said]:
    """Everything that a page says in words, in order within each kind."""
    source = re.sub(r"<script.*?</script>|<svg.*?</svg>", "", page.read_text(), flags=re.DOTALL)
    found = []
    for kind, pattern in _PATTERNS.items():
        found += [Said(page.stem, kind, _plain(part)) for part in re.findall(pattern, source, re.DOTALL)]
    return [each for each in found if each.text]


def _plain(part: str) -> str:
    text = re.sub(r"<code>(.*?)</code>", r"⟦\1⟧", part, flags=re.DOTALL)
    text = re.sub(r"</dt>|</dd>|</div>", " | ", text)
    text = re.sub(r'<span class="(?:value|unit|note|mark[^"]*)">', " | ", text)
    text = html.unescape(re.sub(r"<[^>]*>", "", text))
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"(?:\| )+", "| ", text).strip(" |")
