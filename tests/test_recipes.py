"""CONTRIBUTING's recipes, each followed in a copy of the tree: the places that it names suffice."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tokenpeak import paths
from tokenpeak.store.embedded import running_server

PACKAGE = Path("analysis") / "tokenpeak"
ARCHIVE = paths.ROOT / "tests" / "report" / "golden" / "archive"
TABLE = (paths.ROOT / "CONTRIBUTING.md").read_text().partition("| to | change |")[2].partition("\n\n")[0]
RECIPES = {line.split("|")[1].strip(): set(re.findall(r"`([^`]+)`", line)) for line in TABLE.splitlines()[2:]}


class Copy:
    """A copy of what the product is made of, and where it was changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changed: set[str] = set()
        own = ("analysis/tokenpeak", "analysis/landscapes", "analysis/sweeps")
        for name in (*own, "notebooks", "site", "inventory", "playbooks"):
            ignored = shutil.ignore_patterns("__pycache__", "build", ".build*")
            shutil.copytree(paths.ROOT / name, root / name, ignore=ignored)

    def place(self, place: str) -> Path:
        return self.root / (place[1:] if place.startswith("/") else PACKAGE / place)

    def change(self, place: str, old: str, new: str) -> None:
        """Replace what stands once in a file."""
        text = self.place(place).read_text()
        assert 1 == text.count(old), f"{text.count(old)} × {old!r} in {place}"
        self.place(place).write_text(text.replace(old, new))
        self.changed.add(place)

    def add(self, folder: str, name: str, text: str) -> None:
        """Write a new file."""
        assert not (self.place(folder) / name).exists()
        (self.place(folder) / name).write_text(text)
        self.changed.add(folder)

    def run(self, *argv: str, **variables: str) -> str:
        """What Python prints with the copy in the place of the package."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root / "analysis"),
            "TOKENPEAK_HOME": str(self.root),
            "TOKENPEAK_STATE": str(self.root / "state"),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, *argv], env=environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def tokenpeak(self, *argv: str, **variables: str) -> str:
        """What the copy's command line prints."""
        return self.run("-c", "from tokenpeak.cli import main; main()", *argv, **variables)

    def python(self, code: str) -> object:
        """The value of the last expression that the code prints as JSON."""
        return json.loads(self.run("-c", f"import json\n{code}"))

    def followed(self, recipe: str) -> bool:
        """What was changed is what CONTRIBUTING names, at most two places."""
        assert RECIPES[recipe] == self.changed
        return len(self.changed) <= 2


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture
def database() -> Iterator[str]:
    """An empty database, in a folder that its user may enter."""
    with tempfile.TemporaryDirectory(prefix="tokenpeak-test-") as folder:
        Path(folder).chmod(0o755)
        with running_server(Path(folder) / "postgres") as conninfo:
            yield conninfo


def test_every_recipe_is_followed() -> None:
    """Each line of CONTRIBUTING's table has a test here."""
    followed = set(re.findall(r'followed\("([^"]+)"\)', Path(__file__).read_text()))

    assert set(RECIPES) == followed


@pytest.mark.integration
def test_add_a_gpu(copy: Copy) -> None:
    """A row of facts is enough for a prediction."""
    rows = json.loads(copy.place("predict/data/gpus.json").read_text())["gpus"]
    row = next(row for row in rows if row["name"] == "NVIDIA H100 80GB HBM3")
    added = json.dumps({**row, "name": "NVIDIA Z9", "aliases": ["Z9"]})
    copy.change("predict/data/gpus.json", '"gpus": [', f'"gpus": [{added},')

    assert "NVIDIA Z9" in copy.tokenpeak("predict", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "Z9")
    assert copy.followed("add a GPU")


@pytest.mark.integration
def test_add_a_flag(copy: Copy) -> None:
    """A row of the flag table is enough for an axis to use it."""
    copy.change("vllm/data/flags.json", '"flags": {', '"flags": {"warp": [[26, 26, {"default": 1, "kind": "int"}]],')

    assert ["--warp", "9"] == copy.python(ARGV.format(flag="warp", value=9, version="0.33.0"))[-2:]
    assert copy.followed("add a vLLM flag")


ARGV = """
from tokenpeak.records import Config, ModelName
from tokenpeak.vllm.command import engine_argv
model = ModelName(name="m", served_name="m")
config = Config(config_id="0" * 12, name="c", model=model, flags={{"{flag}": {value}}})
print(json.dumps(engine_argv(config, host="h", port=1, engine_version="{version}")))
"""


@pytest.mark.e2e
def test_add_a_metric(copy: Copy, database: str) -> None:
    """A metric with its derivation is an objective, and a column of the frames and of the database."""
    metric = (
        'Metric(name="tok_per_j", title="Tokens per joule", unit="token/J", direction="higher", formula="1 ÷ J/token", '
        'derived_from=("energy_j_per_output_tok",), derive=lambda joules: 1 / joules),'
    )
    copy.change("metrics.py", "METRICS: tuple[Metric, ...] = (", f"METRICS: tuple[Metric, ...] = (\n    {metric}")
    frame = copy.python(
        "from pathlib import Path\nfrom tokenpeak.spec.sweep import Objective\n"
        "from tokenpeak.store.frames import open_frames\n"
        'assert Objective(workload="w", level="l", metric="tok_per_j")\n'
        f"runs = open_frames([Path({str(ARCHIVE)!r})]).runs\n"
        'print(json.dumps(runs.select("energy_j_per_output_tok", "tok_per_j").drop_nulls().rows()))'
    )

    assert frame == [[joules, pytest.approx(1 / joules)] for joules, _ in frame]
    assert copy.tokenpeak("ingest", str(ARCHIVE), DATABASE_URL=database)
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT tok_per_j FROM tokenpeak.runs WHERE tok_per_j IS NOT NULL").fetchall()
    assert sorted(value for _, value in frame) == pytest.approx(sorted(value for (value,) in rows))
    assert copy.followed("add a metric to the ranking")


@pytest.mark.integration
def test_add_a_metric_over_requests(copy: Copy) -> None:
    """A metric with its formula is in a run's summary, its raw file, and a column of runs for each statistic."""
    metric = (
        'Metric(name="decode_s", title="Decode time", unit="s", direction="lower", formula="last − first token", '
        "distribution=True),"
    )
    copy.change("metrics.py", "METRICS: tuple[Metric, ...] = (", f"METRICS: tuple[Metric, ...] = (\n    {metric}")
    formula = '    "decode_s": lambda _: _LAST - pl.col("first_token_s"),\n    "ttft_s"'
    copy.change("results/request_metrics.py", '    "ttft_s"', formula)
    requests = next((ARCHIVE / "trials").glob("*.requests.parquet"))
    measured, columns = copy.python(
        "import polars as pl\nfrom pathlib import Path\nfrom tokenpeak.records import RunSummary\n"
        "from tokenpeak.results.run_summary import summarize\nfrom tokenpeak.spec.slo import Slo\n"
        "from tokenpeak.store.frames import open_frames\n"
        f"rows = pl.read_parquet({str(requests)!r})\n"
        "raw = summarize(rows, Slo(), from_due=False).model_dump_json()\n"
        f"runs = open_frames([Path({str(ARCHIVE)!r})]).runs\n"
        "print(json.dumps([RunSummary.model_validate_json(raw).decode_s.p95, runs.columns]))"
    )

    assert measured > 0
    assert {"decode_s_n", "decode_s_mean", "decode_s_p99"} <= set(columns)
    assert copy.followed("add a metric over requests")


@pytest.mark.integration
def test_add_an_import_format(copy: Copy) -> None:
    """A module with a FORMAT and its line in the registry are enough for `tokenpeak import`."""
    module = (
        '"""Another tool\'s JSON."""\n\nfrom tokenpeak.exchange.foreign import JsonFormat\n'
        "from tokenpeak.exchange.vllm_bench import read_vllm_bench\n\n"
        'FORMAT = JsonFormat(name="other", looks_like=lambda raw: "other_tool" in raw, tool_of=lambda _: "other 1.0",\n'
        "    read=lambda path: (*read_vllm_bench(path), []))\n"
    )
    copy.add("exchange/", "other.py", module)
    copy.change("exchange/sources.py", "from tokenpeak.exchange import", "from tokenpeak.exchange import other,")
    copy.change("exchange/sources.py", "JSON_FORMATS = (", "JSON_FORMATS = (other.FORMAT, ")
    result = json.loads((paths.ROOT / "tests" / "exchange" / "fixtures" / "vllm-plain.json").read_text())
    (copy.root / "result.json").write_text(json.dumps(result | {"other_tool": 1}))
    copy.tokenpeak("import", "result.json")
    (sweep,) = (copy.root / "results").glob("*/sweep.json")

    assert "other 1.0" == json.loads(sweep.read_text())["imported"]["tool"]
    assert copy.followed("add an import format")


@pytest.mark.integration
def test_add_a_process_manager(copy: Copy) -> None:
    """A class and its name in the table are enough for a node to stop and start production by it."""
    module = (
        '"""Production by pm2."""\n\nfrom tokenpeak.node.production.manager import Manager\n\n\n'
        "class Pm2Manager(Manager):\n"
        "    def is_running(self):\n        return True\n\n"
    )
    copy.add("node/production/managers/", "pm2.py", module)
    copy.change(
        "node/production/managers/__init__.py",
        '    "none": NoManager,\n',
        '    "none": NoManager,\n    "pm2": Pm2Manager,\n',
    )
    copy.change(
        "node/production/managers/__init__.py",
        "from tokenpeak.node.production.managers.supervisord import",
        "from tokenpeak.node.production.managers.pm2 import Pm2Manager\n"
        "from tokenpeak.node.production.managers.supervisord import",
    )
    (copy.root / "state").mkdir(mode=0o700)
    code = (
        "from pathlib import Path\nfrom tokenpeak.node.production.managers import make_manager\n"
        "from tokenpeak.node.machine.state import State\n"
        'print(json.dumps(make_manager({"manager": "pm2"}, State(Path("state"))).is_running()))'
    )

    assert copy.python(code) is True
    assert copy.followed("add a process manager")


@pytest.mark.e2e
def test_add_a_page(copy: Copy) -> None:
    """A notebook in the folder is enough for a page of every sweep, with its place in the menu."""
    notebook = json.loads((paths.ROOT / "notebooks" / "trials.ipynb").read_text())
    notebook["metadata"]["tokenpeak"] = {"title": "My page"}
    copy.add("/notebooks/", "mine.ipynb", json.dumps(notebook))
    copy.tokenpeak("report", str(ARCHIVE))
    (page,) = (copy.root / "site" / "build").glob("*/mine.html")

    assert "<h1>My page</h1>" in page.read_text()
    assert "mine.html" in page.with_name("ranking.html").read_text()
    assert copy.followed("add a page")


@pytest.mark.e2e
def test_add_a_page_to_the_documentation(copy: Copy) -> None:
    """A Markdown file and its line in the contents are enough for a page with its place in the menu."""
    copy.add("/site/content/docs/", "how-to/mine.md", "# Do mine\n\nYou do it.\n")
    contents = copy.place("/site/content/docs/") / "contents.yml"
    contents.write_text(contents.read_text().replace("    - v100\n", "    - v100\n    - mine\n"))
    copy.tokenpeak("docs", "--output", "built")
    pages = copy.root / "built" / "docs"

    assert "<h1>Do mine</h1>" in (pages / "how-to" / "mine.html").read_text()
    assert "how-to/mine.html" in (pages / "index.html").read_text()
    assert copy.followed("add a page to the documentation")
