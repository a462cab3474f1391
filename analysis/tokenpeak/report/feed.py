"""The Atom feed of sweeps. Addresses are relative: a site does not know where it will be put."""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tokenpeak.report.blocks import plain


def atom(entries: Sequence[dict[str, Any]]) -> str:
    """The feed as XML, newest sweep first."""
    newest = entries[0]["started_at"].isoformat() if entries else "1970-01-01T00:00:00+00:00"
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "  <title>TokenPeak sweeps</title>",
        "  <id>urn:tokenpeak:sweeps</id>",
        f"  <updated>{newest}</updated>",
        "  <author><name>TokenPeak</name></author>",
        '  <link rel="self" href="feed.atom"/>',
    ]
    for entry in entries:
        mark = f" ({', '.join(entry['marks'])})" if entry["marks"] else ""
        summary = " ".join(plain(answer["parts"]) for answer in entry["answers"])
        lines += [
            "  <entry>",
            f"    <title>{escape(entry['name'] + ' on ' + '; '.join(entry['hardware']) + mark)}</title>",
            f"    <id>urn:tokenpeak:sweep:{escape(entry['sweep_id'])}</id>",
            f"    <updated>{entry['started_at'].isoformat()}</updated>",
            f"    <link href={quoteattr(entry['sweep_id'] + '/index.html')}/>",
            f"    <summary>{escape(summary)}</summary>",
            "  </entry>",
        ]
    return "\n".join([*lines, "</feed>", ""])
