"""The comparison page has the sweeps, and a script in each sweep's folder has the results of its configs."""

import json
import re
from pathlib import Path

RESULTS = re.compile(r'^window\.tokenpeak\.compared\["(.+?)"\] = (\[.*\]);$', re.MULTILINE)


def launched(sweep: Path) -> set[tuple[str, str]]:
    """Hardware and config of each trial that a sweep's raw files hold, without holdout runs."""
    records = [json.loads(path.read_text()) for path in (sweep / "data" / "raw" / "trials").glob("*.json")]
    return {(each["hardware"], each["config"]["config_id"]) for each in records if not each.get("holdout")}


def test_each_sweeps_results_are_in_its_script(site: Path) -> None:
    """Every config that was launched is in the script that the page names, and in no other; none is in the page."""
    page = (site / "compare.html").read_text()
    (text,) = re.findall(r'id="compare-data">(.*?)</script>', page, re.DOTALL)
    sides = json.loads(text)["sides"]
    for sweep in (path.parent for path in site.glob("*/compare.js")):
        own = [side for side in sides if side["script"] == f"{sweep.name}/compare.js"]
        found = {key: json.loads(results) for key, results in RESULTS.findall((sweep / "compare.js").read_text())}
        configs = {(json.loads(f'"{key}"').partition("|")[2], each["id"]) for key in found for each in found[key]}

        assert {side["key"] for side in own} == {json.loads(f'"{key}"') for key in found}
        assert launched(sweep) == configs
        assert not [config_id for _, config_id in configs if config_id in page]
    assert len(sides) >= 3
