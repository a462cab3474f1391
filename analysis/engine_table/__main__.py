"""Makes tokenpeak/vllm/data/flags.json: which flags and variables each vLLM release takes, from its source.

A development tool; nothing of it runs with the product. `python -m engine_table` in `analysis/` reads the sources of
RELEASES through pip and writes the table.
"""

import json
from pathlib import Path
from typing import Any

from engine_table.arguments import flags, methods, variables
from engine_table.reader import Release, release_files, wanted

RELEASES = (
    *("0.7.3", "0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.1"),
    *("0.18.1", "0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0"),
    *("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
)
"""The last patch release of each minor one, oldest first."""
TABLE = Path(__file__).parents[1] / "tokenpeak" / "vllm" / "data" / "flags.json"


def spans(facts_by_release: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    """Name → [first release, last release, facts] for each stretch of releases in which its facts are the same."""
    table: dict[str, list[list[Any]]] = {}
    for index, known in enumerate(facts_by_release):
        for name, facts in known.items():
            stretches = table.setdefault(name, [])
            if stretches and stretches[-1][1] == index - 1 and stretches[-1][2] == facts:
                stretches[-1][1] = index
            else:
                stretches.append([index, index, facts])
    return {name: table[name] for name in sorted(table)}


def main() -> None:
    """Write the table and say how many flags each release has."""
    tables = []
    for name in RELEASES:
        release = Release.parse(release_files(name, wanted))
        tables.append((flags(release), variables(release), methods(release)))
        print(f"{name}: {len(tables[-1][0])} flags, {len(tables[-1][1])} variables, {len(tables[-1][2])} methods")
    table = {
        "releases": RELEASES,
        "flags": spans([each[0] for each in tables]),
        "variables": spans([each[1] for each in tables]),
        "quantization": spans([each[2] for each in tables]),
    }
    lines = []
    for key, part in table.items():
        if isinstance(part, dict):
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in part.items())
            lines.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(part)}")
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
