"""Canaries in every text of an archive: none is in the site that `publish` sends, nor in what `archive` packs."""

import json
import subprocess
import sys
import types
import typing
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from archive_factory import make_archive
from leak_search import leaks
from tokenpeak.cli import tokenpeak as commands
from tokenpeak.loadgen.calibration import Calibration, Point
from tokenpeak.records import ApplyRecord, EndRecord, SweepRecord, TrialRecord
from tokenpeak.records.quality import SweepQuality
from tokenpeak.report.site.disclosure import RULES, fields_of, holds_text, is_record, parts_of
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.store.frames import open_frames

TOKENPEAK = str(Path(sys.executable).with_name("tokenpeak"))
ROOT = "kn4ry"
"""In every canary that is a word; addresses and ids have beginnings of their own."""
CANARIES = (ROOT, "2001:db8:ca4a", "10.203.", "ca4a0000-1111", "ca:4a:00:", "AKIAKN4RY", "hunter2kn")
NODES = ("kn4ry-gpu-07", "orionkn4ry")
LOAD_HOST = "kn4ryload"
_JOINED = """
sweep_id trial_id config_id config_class hardware node nodes load_host load_hosts level_label workload
level metric also highest spec choices when axes baseline production_downtime_s open_downtime_s
unrestored server calibration imported format_version git_revision compute_capability manager endpoint
window sha256 engine_version engine extra_configs within_limits
"""
JOINED = frozenset(_JOINED.split())
"""Names by which records find each other, and what is set below; others take any text."""
PLAIN = {
    "kernel": "6.1-kn4rykernel",
    "unit": "kn4ryunit.service",
    "url": "http://kn4rykube.example:8000",
    "uuid": "GPU-ca4a0000-1111-2222-3333-444444444444",
    "arguments": ["--served-model-name", "kn4ryserved", "--api-key", "hunter2kn"],
    "vram_holders": ["77 kn4rytrainer 4096"],
}
"""Fields that leave empty, whatever they hold."""


def sensitive_text(seed: str) -> str:
    """A text with one canary of every kind that a text can give away."""
    number = zlib.crc32(seed.encode()) % 60000
    word = f"{ROOT}{number}"
    return (
        f"of jane.{word}@corp.example at 2001:db8:ca4a:{number:x}::1 and [fe80::ca4a:{number:x}%eth0] "
        f"10.203.{number % 250}.7:8099 file /srv/{word}/x.log --api-key {word}key0 hf_{word}abcdefghijklmnop "
        f"Authorization: Bearer {word}.abc-123 sk-{word}abcdefghijk ghp_{word}abcdefghijklmnop "
        f"AKIAKN4RY{number:05d}ABCDE "
        f"http://{word}:hunter2kn@{word}.corp.internal:3128/{word}?token={word}99 bob:hunter2kn@proxy{word}:3128 "
        f"GPU-ca4a0000-1111-2222-3333-{number:012x} ca:4a:00:00:{number % 200 + 10:02x}:ff HF_TOKEN={word}q1w2e3 "
        f"eyJhbGci{word}.eyJzdWIi{word}.sig{word} password='{word}' user={word} ssh {word}@box gpu.{word}.internal "
        f"gpu7.{word}.com n1.{word}.co.uk token '{word}' jdbc:oracle:thin:{word}/hunter2kn@{word}:1521/x "
        f"\\\\{word}\\share\\x //{word}/share/x "
        f"on {NODES[0]} and {NODES[1]}, {LOAD_HOST}, of kn4ryunit, at 12:34:56 by 0.32.0"
    )


def sensitive_key(seed: str) -> str:
    """A shorter one, for keys."""
    number = zlib.crc32(seed.encode()) % 60000
    return f"jane@{ROOT}{number}.example /srv/{ROOT}{number} 2001:db8:ca4a::{number:x}"


def is_text(annotation: Any) -> bool:
    """The field is a text, or a text or nothing."""
    parts = typing.get_args(annotation)
    return annotation is str or (
        typing.get_origin(annotation) in (typing.Union, types.UnionType)
        and str in parts
        and typing.Literal not in parts
    )


def spread(kind: Any, raw: Any, place: str = "") -> None:
    """Put canaries into every text, list of texts and mapping by text of a record and its parts, in place."""
    if isinstance(raw, list):
        for item in raw:
            spread(kind, item, place)
    elif isinstance(raw, dict) and raw and raw.keys() <= fields_of(kind).keys():
        if "kind" in raw and raw["kind"] not in typing.get_args(fields_of(kind)["kind"].annotation):
            return
        for name, field in fields_of(kind).items():
            if name in JOINED:
                pass
            elif name in PLAIN:
                raw[name] = PLAIN[name]
            else:
                _put(kind, raw, name, field.annotation)
            for part in _parts(field.annotation):
                spread(part, raw.get(name), f"{place}.{name}")
    elif isinstance(raw, dict):
        for item in raw.values():
            spread(kind, item, place)


def _put(kind: type[Any], raw: dict[str, Any], name: str, annotation: Any) -> None:
    before = raw.get(name)
    seed = f"{kind.__name__}.{name}.{raw.get('config_id')}"
    if is_text(annotation):
        raw[name] = f"{before or ''} {sensitive_text(seed)}".strip()
    elif typing.get_origin(annotation) is tuple and typing.get_args(annotation)[0] is str:
        raw[name] = [*(before or []), sensitive_text(seed)]
    elif typing.get_origin(annotation) is dict and typing.get_args(annotation)[0] is str:
        values = typing.get_args(annotation)[1]
        some = next(iter((before or {}).values()), None)
        value = sensitive_text(seed + "v") if values is str or is_text(values) else some if some is not None else 3
        raw[name] = {**(before or {}), sensitive_key(seed): value, "MY_OWN_SETTING": value}
    else:
        return
    try:
        TypeAdapter(kind).validate_python({**raw})
    except ValidationError as error:
        if any(name in each["loc"] for each in error.errors()):
            if before is None:
                raw.pop(name, None)
            else:
                raw[name] = before


def _parts(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and is_record(annotation):
        return [annotation]
    return [found for part in typing.get_args(annotation) for found in _parts(part)]


@pytest.fixture(scope="module")
def sown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with canaries in its records, keys, logs, requests and claims."""
    folder = tmp_path_factory.mktemp("kn4ry-results") / "20261120-220000-sown-lab"
    axes = {"max_num_seqs": [8, 64], "chat_template": ["/srv/kn4ry1/a.jinja", "/srv/kn4ry2/a.jinja"]}
    make_archive(folder, axes=axes, simulated=False, seconds=4, requests=24)
    for path in [folder / "sweep.json", folder / "end.json", *sorted(folder.glob("trials/*.json"))]:
        text = path.read_text()
        for index, name in enumerate(NODES, start=1):
            text = text.replace(f'"node-{index}"', f'"{name}"')
        # The model lies at a path; its last part is its name, and stays.
        raw = json.loads(
            text.replace('"meta-llama/Llama-3.1-8B-Instruct"', '"/srv/kn4ry-models/team/Llama-3.1-8B-Instruct"')
        )
        _sow(path, raw)
        path.write_text(json.dumps(raw))
    for path in sorted(folder.glob("trials/*.zst")):
        text = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).decode()
        key = "-----BEGIN RSA PRIVATE KEY-----\nkn4ryMIIE\n-----END RSA PRIVATE KEY-----\n"
        path.write_bytes(zstandard.ZstdCompressor().compress(f"{text}{sensitive_text(path.name)}\n{key}".encode()))
    for path in sorted(folder.glob("trials/*.parquet")):
        frame = pl.read_parquet(path).with_columns(
            error=pl.lit(sensitive_text("requests")), kn4ry_column=pl.lit("kn4ry")
        )
        frame.write_parquet(path, metadata={"made_by": "kn4ry"})
    claim = {"id": "C1", "statement": sensitive_text("claim"), "check": "none"}
    (folder / "notes-of-kn4ry.txt").write_text("kn4ry")
    (folder / "trials" / "0099-0123abcd.json").write_text(json.dumps({"kn4ry": sensitive_text("malformed"), **claim}))
    return folder


def _sow(path: Path, raw: dict[str, Any]) -> None:
    if path.name == "sweep.json":
        spread(SweepRecord, raw)
        spread(SweepSpec, raw["spec"])
        raw["load_hosts"] = [LOAD_HOST]
        way = {"load_hosts": [LOAD_HOST], "server": NODES[0]}
        point = {name: 0.5 for name, field in Point.model_fields.items() if field.annotation is not int}
        found = {
            "measured_at": raw["started_at"],
            "host": "kn4rylaptop",
            "cpu_cores": 2,
            "way": way,
            "round_trip_s": 0.1,
        }
        found |= {"points": [{"streams": 1, **point}], "highest_streams": 1, "highest_tokens_per_s": 5.0}
        Calibration.model_validate(found)
        raw["calibration"] = {"calibrations": [found]}
        SweepRecord.model_validate(raw)
    elif path.name == "end.json":
        spread(EndRecord, raw)
        raw["unrestored"] = [NODES[1]]
        EndRecord.model_validate(raw)
    else:
        spread(TrialRecord, raw)
        raw["argv"] = ["/opt/kn4ry/bin/vllm", *raw["argv"][1:], "--api-key", "hunter2kn", "--hf-token=hunter2kn"]
        for run in raw["runs"]:
            run["client"]["hosts"] = [
                {
                    "load_host": LOAD_HOST,
                    "requests": 1,
                    "processes": 1,
                    "cpu_s": 1,
                    "began_late_s": 0,
                    "clock_error_s": 0,
                }
            ]
        TrialRecord.model_validate(raw)


def run(*words: object) -> str:
    """A command; what it says."""
    done = CliRunner().invoke(commands, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packed(sown: Path) -> tuple[Path, str]:
    """What `tokenpeak archive` packs, and what it says."""
    target = sown.parent / "packed.tar.zst"
    return target, run("archive", sown, "--output", target)


@pytest.fixture(scope="module")
def published(sown: Path) -> Path:
    """What `tokenpeak publish` sends of what `tokenpeak report` builds."""
    run("report", sown, "--output", sown.parent / "site")
    run("publish", "dir", sown.parent / "out", "--site", sown.parent / "site")
    return sown.parent / "out"


ROOTS = (SweepRecord, TrialRecord, EndRecord, ApplyRecord, SweepQuality, SweepSpec, Calibration)
"""What an archive is made of; all other records are parts of these."""


def records() -> set[type[Any]]:
    """Every record that an archive can hold."""
    seen: set[type[Any]] = set()
    waiting: list[type[Any]] = list(ROOTS)
    while waiting:
        if (record := waiting.pop()) not in seen:
            seen.add(record)
            waiting += [part for field in fields_of(record).values() for part in parts_of(field.annotation)]
    return seen


def test_every_text_field_has_a_rule() -> None:
    """A field that can hold text and that nobody has decided about is named here; until then it leaves empty."""
    wanted = {
        (record, name)
        for record in records()
        for name, field in fields_of(record).items()
        if holds_text(field.annotation)
    }
    decided = {(record, name) for record, rules in RULES.items() for name in rules}

    assert [] == sorted(f"{record.__name__}.{name}" for record, name in wanted ^ decided)


def test_no_canary_is_in_a_packed_archive(packed: tuple[Path, str]) -> None:
    """Every byte of it, unpacked and decoded."""
    assert [] == leaks(packed[0], CANARIES)[:20]


@pytest.mark.e2e
def test_no_canary_is_in_a_published_site(published: Path) -> None:
    """Every page, script, notebook, table and raw file of it."""
    assert (published / "20261120-220000-sown-lab" / "index.html").is_file()
    assert [] == leaks(published, CANARIES)[:20]


@pytest.mark.parametrize("form", ["csv", "vllm-bench-detailed"])
def test_no_canary_is_in_what_is_exported(form: str, sown: Path, tmp_path: Path) -> None:
    """Tables and results of another tool's schema are made from the cleaned copy, unless everything is to be kept."""
    said = run("export", sown, "--format", form, "--output", tmp_path / "out")

    assert "names machines, people or secrets" in said
    assert list((tmp_path / "out").rglob("*.*"))
    assert [] == leaks(tmp_path / "out", CANARIES)[:20]
    run("export", sown, "--format", form, "--output", tmp_path / "whole", "--keep-everything")
    assert leaks(tmp_path / "whole", CANARIES)


@pytest.mark.e2e
def test_a_site_that_was_not_cleaned_is_refused(sown: Path, tmp_path: Path) -> None:
    """A site with the nodes' own names leaves only on request."""
    run("report", sown, "--node-names", "--output", tmp_path / "site")
    words = [TOKENPEAK, "publish", "dir", str(tmp_path / "out"), "--site", str(tmp_path / "site")]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)

    assert 1 == refused.returncode
    assert "--keep-everything" in refused.stderr
    assert not (tmp_path / "out").exists()
    subprocess.run([*words, "--keep-everything"], capture_output=True, check=True)
    assert NODES[0] in (tmp_path / "out" / sown.name / "data" / "raw" / "sweep.json").read_text()


@pytest.mark.e2e
def test_a_cleaned_archive_gives_the_same_figures(sown: Path, packed: tuple[Path, str]) -> None:
    """Every column that is no text is equal, row by row, and what was equal or different in a text column still is."""
    before, after = open_frames([sown]), open_frames([packed[0]])
    texts = (pl.String, pl.List(pl.String))
    for name in ("sweeps", "nodes", "configs", "trials", "runs", "series"):
        one, other = getattr(before, name), getattr(after, name)
        figures = [column for column, kind in one.schema.items() if kind not in texts]
        assert one.select(figures).equals(other.select(figures)), name
        for column in set(one.columns) - set(figures) & set(other.columns) if name != "series" else ():
            if one[column].dtype == pl.String and column in ("node", "config_id", "hardware", "trial_id", "model_name"):
                assert one[column].rank("dense").n_unique() == other[column].n_unique(), (name, column)
    assert ["node-1", "node-2"] == after.nodes["node"].to_list()
    assert {"node-1", "node-2"} == set(after.trials["node"])
    run("report", packed[0], "--output", packed[0].parent / "again")
    page = (packed[0].parent / "again" / sown.name / "index.html").read_text()
    assert "vllm serve /PATH/TO/Llama-3.1-8B-Instruct" in page
    assert "--max_num_seqs=64" in page, "as the recorded command has it"
    assert "A100-SXM4-80GB" in page
