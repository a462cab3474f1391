"""Variables of an inventory as YAML text.

Ansible takes a text of an inventory for a template, so that `{{ lookup('pipe', …) }}` in a node's words would be a
command on this machine. A text is written as it is where it is made of characters that no template has, and as
`!unsafe` otherwise; `Template` marks the few that are templates and our own.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import yaml

from tokenpeak.node.machine.words import wrong_word

UNSAFE = "!unsafe"
"""Ansible's tag of a text that it never renders."""
_STR = "tag:yaml.org,2002:str"
_HARMLESS = re.compile(r"[A-Za-z0-9 ._/:@=+,~-]*")
"""Neither a template nor the line `#jinja2:`, by which a text chooses delimiters of its own."""
_WIDTH = 110


class Template(str):
    """A text of our own that Ansible renders."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Plain values, each text of them safe by its tag."""

    def ignore_aliases(self, _: Any) -> bool:
        """Write what occurs twice twice."""
        return True


def _represented(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # Ansible resolves what follows the tag as if it stood there without quotes.
    is_word = dumper.resolve(yaml.ScalarNode, value, (True, False)) == _STR  # type: ignore[no-untyped-call]
    if _HARMLESS.fullmatch(value) or not is_word:
        return dumper.represent_scalar(_STR, value)
    return dumper.represent_scalar(UNSAFE, value, style='"')


_Dumper.add_representer(str, _represented)
_Dumper.add_representer(Template, lambda dumper, value: dumper.represent_scalar(_STR, str(value)))


def variables_yaml(values: Mapping[str, Any], *, in_lines: bool = True) -> str:
    """The variables as YAML; with `in_lines`, only lists and mappings without others in them stand in one line."""
    flow = None if in_lines else False
    written = partial(yaml.dump, dict(values), Dumper=_Dumper, sort_keys=False, width=_WIDTH, default_flow_style=flow)
    text = str(written(allow_unicode=True))
    # What hides or reorders text is written by its code.
    return str(written(allow_unicode=False)) if wrong_word(text, len(text) * 4, "\n") else text
