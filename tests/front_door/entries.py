"""One entry for each documented command: what is typed, how it must end, and what its words are compared with."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.front_door.door import MODEL, Done, Door

Check = Callable[[Door, Done], str]
FIXTURES = Path("tests") / "exchange" / "fixtures"
BY_HAND = ".venv/bin/ansible-playbook -i inventory/v100 playbooks"
H100 = "analysis/landscapes/search-h100.tar.zst"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`line` as documented; `typed` where it names a placeholder or a small sweep stands for a long one.

    `how`: `run`; `dry` (`make -n`, what it would run exists); `long` (only with FRONT_DOOR=long, else dry); `node`
    (typed on the node); `background` (runs until Ctrl-C; `check` is asked while it runs); `ctrl-c` (interrupted).
    """

    line: str
    check: Check
    typed: str | None = None
    how: str = "run"
    status: int = 0
    timeout_s: float = 120.0
    word: str = ""
    """For `ctrl-c`: it is interrupted once this is printed."""


def says(done: Done, *words: str) -> None:
    """The words are among what was printed."""
    for word in words:
        assert word in done.said, f"{word!r} is not said:\n{done.said[-3000:]}"


def status_is_true(door: Door, done: Done) -> str:
    """It says that production serves MODEL exactly when production answers by MODEL."""
    served = door.served()
    assert (f"serves {MODEL}" in done.said) == (served == MODEL), f"served is {served}:\n{done.said[-3000:]}"
    return f"“serves {MODEL.rpartition('/')[2]}” ⇔ the node's own completion"


def status_at_first(door: Door, done: Done) -> str:
    """Before the first contact, a node whose key is unknown is not talked to."""
    assert "serves" not in done.said
    assert re.search("[Hh]ost key", done.said), done.said[-3000:]
    return "unknown host key: refused, nothing on the node"


def restored(door: Door, done: Done) -> str:
    """It says how production stands, and production stands so."""
    says(done, "v100-1:")
    assert "NOT restored" not in done.said
    assert MODEL == door.served()
    return "production answers; nothing was restarted" if "No trial" in done.said else "production answers"


def probed(door: Door, done: Done) -> str:
    """The hardware is what nvidia-smi on the node says, and production is as it was."""
    names = door.node.sh("/usr/bin/nvidia-smi", "--query-gpu=name", "--format=csv,noheader").split("\n")
    # The table breaks its cells at the terminal's width.
    says(done, next(name for name in names if name).split()[-1], MODEL.partition("/")[0])
    assert door.marks["started"] == door.started()
    return f"{len([name for name in names if name])} boards by nvidia-smi; production's PID unchanged"


def measured_by_hand(door: Door, done: Done) -> str:
    """The client's own files say what it measured, and production serves again."""
    says(done, "Launch the engine in production's place", "Run the load client", "failed=0")
    measured = list((door.clone / "trial.d").rglob("requests.parquet"))
    assert 1 == len(measured), done.said[-3000:]
    assert MODEL == door.served()
    before, door.marks["started"] = door.marks["started"], door.started()
    assert before != door.marks["started"], "production was stopped for the trial"
    return "requests of one trial; another PID of production; the node's own completion"


def planned(door: Door, done: Done) -> str:
    """The matrix adds up."""
    total, feasible, dropped = map(int, re.findall(r"(\d+) configs = (\d+) feasible.* \+ (\d+) dropped", done.said)[0])
    assert total == feasible + dropped
    return f"{total} = {feasible} + {dropped}"


def swept(door: Door, done: Done) -> str:
    """The archive is complete, the page is there, and production serves."""
    archive = door.sweeps()[-1]
    end = door.end_of(archive)
    assert "completed" == end["status"]
    assert [] == end["unrestored"]
    pages = re.findall(r"Site: +(\S+)", done.said)
    assert pages, done.said[-2000:]
    assert Path(pages[-1]).is_file(), pages
    if "v100" in done.line or "RESUME" in done.line:
        assert MODEL == door.served()
    return f"{end['trials']} trials in end.json and the archive; page; production answers"


def interrupted(door: Door, done: Done) -> str:
    """It prints how to go on, and production serves as soon as it has ended."""
    assert MODEL == door.served(), done.said[-2000:]
    door.ids["20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c"] = re.findall(r"make sweep RESUME=(\S+)", done.said)[-1]
    return "Ctrl-C: production answers; the way on is printed"


def change_is_shown(door: Door, done: Done) -> str:
    """The difference is shown, and production is the same process as before."""
    says(done, "v100-1", "Nothing was changed.")
    assert re.search(r"^[+-]  --", done.said, re.MULTILINE), done.said[-2000:]
    assert door.arguments() == door.marks.setdefault("arguments", door.arguments())
    return "a diff; production's command line unchanged"


def applied(door: Door, done: Done) -> str:
    """It says that it was confirmed, production answers, and its process has the flag that was shown."""
    says(done, "v100-1: CONFIRMED")
    assert MODEL == door.served()
    assert "--max-num-seqs 8" in door.arguments()
    assert "--max-num-seqs" not in door.marks["arguments"]
    records = list((door.clone / "results").glob("*/applies/*.json"))
    assert records
    return "the process's own arguments; a record in the archive; production answers"


def change_is_shown_of_rollback(door: Door, done: Done) -> str:
    """The difference back is shown, and production has the applied definition still."""
    says(done, "rollback of apply", "Nothing was changed.", "-  --max-num-seqs 8")
    assert "--max-num-seqs 8" in door.arguments()
    return "a diff; production's command line unchanged"


def rolled_back(door: Door, done: Done) -> str:
    """Production has the command line that it had before the apply."""
    says(done, "v100-1: CONFIRMED")
    assert MODEL == door.served()
    assert door.marks["arguments"] == door.arguments()
    return "the process's arguments of before; production answers"


def gate_is_planned(_: Door, done: Done) -> str:
    """It says what so many launches find, and what the asked regression takes."""
    sizes = re.findall(r"n=\d+: [\d.]+%", done.said)
    needed = re.search(r"To find a regression of 30.0% in every figure: (\d+) (?:new )?launches", done.said)
    assert sizes and needed, done.said[-3000:]
    return f"{len(sizes)} sizes below 100%; 30% takes {needed[1]} launches"


def notified(door: Door, done: Done) -> str:
    """The receiver says that it got the event, and has it."""
    says(done, "got it")
    assert "test" == json.loads((door.clone / "notified.json").read_text())["event"]
    return "the command's file holds the event"


def site_is_there(door: Door, done: Done) -> str:
    """The index is there and names what was asked for: the archive's device, or each sweep of results."""
    index = door.clone / "site" / "build" / "index.html"
    assert index.is_file()
    wanted = ["H100"] if H100 in done.line else [path.name for path in door.sweeps()]
    assert wanted
    assert [] == [name for name in wanted if name not in index.read_text()]
    return f"index.html names {', '.join(wanted)}"


def served_site(door: Door, _: Done) -> str:
    """The site is served."""
    assert "<html" in door.page("http://127.0.0.1:8050/index.html")
    return "index.html over HTTP"


def ingested(door: Door, done: Done) -> str:
    """It counts as many trials as there are files."""
    trials = sum(len(list((path / "trials").glob("*.json"))) for path in door.sweeps())
    assert f" {trials} trials" in done.said, (trials, done.said[-1000:])
    return f"{trials} trials in Postgres and in files"


def published(door: Door, _: Done) -> str:
    """The pages are where they were sent."""
    assert (door.place / "www" / "index.html").is_file()
    return "index.html at DEST"


def packed(door: Door, _: Done) -> str:
    """The file is there and is a zstd frame."""
    packs = list((door.clone / "results").glob("*.tar.zst"))
    assert packs
    assert b"\x28\xb5\x2f\xfd" == packs[0].read_bytes()[:4]
    return "a zstd file"


def imported(door: Door, done: Done) -> str:
    """The archive that it names is there."""
    path = Path(re.findall(r"into (\S+)", done.said)[0])
    assert (door.clone / path / "sweep.json").is_file()
    return "the archive's sweep.json"


def exported(door: Door, done: Done) -> str:
    """It counts the files that it has written."""
    count = int(re.findall(r"Wrote (\d+) files", done.said)[0])
    assert count <= len([path for path in (door.clone / "exported").rglob("*") if path.is_file()])
    return f"{count} files"


def has_words(*words: str) -> Check:
    """A check that these are printed."""

    def check(_: Door, done: Done) -> str:
        says(done, *words)
        return "says " + ", ".join(words)

    return check


def exists(path: str) -> Check:
    """A check that a file of the clone is there."""

    def check(door: Door, _: Done) -> str:
        assert (door.clone / path).exists()
        return f"{path} is there"

    return check


def would_run(_: Door, done: Done) -> str:
    """Make -n expands it."""
    assert done.said.strip()
    return "make -n: " + done.said.strip().splitlines()[-1][:60]


def key_is_known(door: Door, _: Done) -> str:
    """The node's key is in the user's file."""
    assert door.node.address in (door.home / ".ssh" / "known_hosts").read_text()
    return "known_hosts has the node"


def same_fingerprint(door: Door, done: Done) -> str:
    """The fingerprint read here is the one read on the node."""
    print_ = re.findall(r"SHA256:\S+", done.said)[-1]
    assert door.marks.setdefault("fingerprint", print_) == print_
    return "fingerprint, on the node and here"


def installed(door: Door, _: Done) -> str:
    """The guard's units are on the node, and production is as it was."""
    assert "tokenpeak-guard-" in door.node.sh("ls", "/etc/systemd/system")
    assert door.marks["started"] == door.started()
    return "guard's units; production's PID unchanged"


def rotated(door: Door, done: Done) -> str:
    """The node has another secret than before, and production is as it was."""
    before, now = door.marks.get("secrets", ""), door.secrets()
    assert now
    assert before != now, done.said
    door.marks["secrets"] = now
    assert MODEL == door.served()
    return "another secret on the node; production answers"


def uninstalled(door: Door, done: Done) -> str:
    """Nothing of TokenPeak's is on the node's disk, and production is as it was."""
    says(done, "v100-1:")
    assert door.marks["files"] == door.own_files()
    assert MODEL == door.served()
    return "no file by our name on the node that was not there at first; production answers"


def not_there(_: Door, done: Done) -> str:
    """A node that has nothing of ours is reported to have nothing."""
    says(done, "v100-1: TokenPeak is not on this node.")
    return "says that nothing is there"


def wheel_is_there(door: Door, _: Done) -> str:
    """There is one wheel."""
    assert 1 == len(list((door.clone / "dist").glob("*.whl")))
    return "dist/*.whl"


def cleaned(door: Door, _: Done) -> str:
    """The environment is gone, results stay."""
    assert not (door.clone / ".venv").exists()
    assert door.sweeps()
    return ".venv gone, results there"


def found(door: Door, done: Done) -> str:
    """The inventory that was written names the unit and the model that the node serves; production is as it was."""
    written = (door.clone / "inventory" / "found" / "group_vars" / "all.yml").read_text()
    assert "unit: vllm.service" in written, written
    assert MODEL in written, written
    assert door.node.address in (door.clone / "inventory" / "found" / "hosts.yml").read_text()
    assert door.marks["started"] == door.started()
    return "unit and model of the node's own systemd; production's PID unchanged"


def counted(door: Door, done: Done) -> str:
    """Postgres has as many trials as there are files."""
    trials = sum(len(list((path / "trials").glob("*.json"))) for path in door.sweeps())
    assert re.search(rf"^ *{trials}$", done.said, re.MULTILINE), (trials, done.said)
    return f"{trials} trials by psql and in files"


def nothing_went(door: Door, done: Done) -> str:
    """No archive is gone."""
    says(done, "Nothing to remove")
    assert door.sweeps()
    return "the archives are there"


SMALL = "make sweep INVENTORY=v100 SWEEP=door"
ENTRIES = (
    Entry(line="make setup", check=exists(".venv/bin/tokenpeak")),
    Entry(line="make help", check=has_words("make sweep", "Variables")),
    Entry(line=".venv/bin/tokenpeak --help", check=has_words("Commands:")),
    Entry(line="make plan INVENTORY=v100", check=planned),
    Entry(line="make plan", check=planned),
    Entry(line="make status INVENTORY=v100", check=status_at_first, status=1),
    Entry(line="ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", check=same_fingerprint, how="node"),
    Entry(
        line="ssh-keyscan -t ed25519 HOST > node.key && ssh-keygen -lf node.key",
        check=same_fingerprint,
    ),
    Entry(line="cat node.key >> ~/.ssh/known_hosts", check=key_is_known),
    Entry(line="make probe INVENTORY=v100", check=probed),
    Entry(line="make probe", typed="make probe INVENTORY=v100", check=probed),
    Entry(
        line="tokenpeak init --probe me@HOST",
        typed=".venv/bin/tokenpeak init --probe root@HOST --inventory found",
        check=found,
    ),
    Entry(line=f"{BY_HAND}/probe.yml -v", check=probed),
    Entry(
        line=".venv/bin/tokenpeak plan --inventory v100 --trial trial.json",
        typed=".venv/bin/tokenpeak plan --inventory v100 --sweep door --trial trial.json",
        check=exists("trial.json"),
    ),
    Entry(line=f"{BY_HAND}/trial.yml -e @trial.json", check=measured_by_hand, timeout_s=300),
    Entry(line=f"{BY_HAND}/restore.yml", check=has_words("failed=0")),
    Entry(line="make install INVENTORY=x INSTALL_USER=root", check=installed),
    Entry(line="make install", typed="make install INVENTORY=x INSTALL_USER=root", check=installed),
    Entry(line="make status INVENTORY=v100", check=status_is_true),
    Entry(line="make restore INVENTORY=v100", check=restored),
    Entry(line="make sweep INVENTORY=v100", typed=SMALL, check=interrupted, how="ctrl-c", status=130, word=" begins"),
    Entry(line="make sweep RESUME=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c", check=swept, timeout_s=200),
    Entry(
        line="make apply SWEEP_ID=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c",
        check=change_is_shown,
        timeout_s=200,
    ),
    Entry(
        line="make apply",
        typed="make apply SWEEP_ID=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c YES=1",
        check=applied,
        timeout_s=300,
    ),
    Entry(line="make rollback INVENTORY=v100", check=change_is_shown_of_rollback, timeout_s=200),
    Entry(line="make rollback", typed="make rollback INVENTORY=v100 YES=1", check=rolled_back, timeout_s=200),
    Entry(line="make sweep INVENTORY=v100", typed=SMALL, check=swept, timeout_s=200),
    Entry(
        line="tokenpeak sweep --inventory v100",
        typed=".venv/bin/tokenpeak sweep --inventory v100 --sweep door.yml",
        check=swept,
        timeout_s=200,
    ),
    Entry(line="make status", typed="make status INVENTORY=v100", check=status_is_true),
    Entry(line="make restore", typed="make restore INVENTORY=v100", check=restored),
    Entry(
        line="make install INVENTORY=x ROTATE=1",
        typed="make install INVENTORY=x ROTATE=1 INSTALL_USER=root",
        check=rotated,
    ),
    Entry(
        line="tokenpeak install --inventory x --rotate",
        typed=".venv/bin/tokenpeak install --inventory v100 --user root --rotate",
        check=rotated,
    ),
    Entry(line="make status", typed="make status INVENTORY=v100", check=status_is_true),
    Entry(line="make uninstall INVENTORY=x", typed="make uninstall INVENTORY=x INSTALL_USER=root", check=uninstalled),
    Entry(
        line="tokenpeak uninstall --load-hosts",
        typed=".venv/bin/tokenpeak uninstall --inventory v100 --user root --load-hosts",
        check=not_there,
    ),
    Entry(line="make report", check=site_is_there),
    Entry(line="make serve", check=served_site, how="background", word="http"),
    Entry(line="make ingest", check=ingested),
    Entry(
        line="tokenpeak sql",
        typed='.venv/bin/tokenpeak sql "SELECT count(*) FROM v_trials"',
        check=counted,
    ),
    Entry(
        line="tokenpeak database status",
        typed=".venv/bin/tokenpeak database status",
        check=has_words("It has this version's tables."),
    ),
    Entry(
        line="tokenpeak prune",
        typed=".venv/bin/tokenpeak prune --keep 99 --dry-run",
        check=nothing_went,
    ),
    Entry(
        line="tokenpeak completion bash",
        typed='eval "$(.venv/bin/tokenpeak completion bash)"; complete -p tokenpeak',
        check=has_words("tokenpeak"),
    ),
    Entry(line="make publish", typed="make publish TARGET=dir DEST=../www", check=published),
    Entry(line="make archive", typed="make archive SWEEP_ID=SWEEP", check=packed),
    Entry(line="make import", typed=f"make import FILES={FIXTURES}/vllm-plain.json", check=imported),
    Entry(line="make export", check=exported),
    Entry(line=f"make report ARCHIVE={H100}", check=site_is_there),
    Entry(
        line="make gate",
        typed="make gate PLAN=1 REGRESSION=0.3 AGAINST=analysis/landscapes/landscape-cpu.tar.zst",
        check=gate_is_planned,
    ),
    Entry(
        line="tokenpeak notify",
        typed='echo "tokenpeak_notify: [{command: [tee, $PWD/notified.json]}]" >> inventory/v100/group_vars/all.yml'
        " && .venv/bin/tokenpeak notify --inventory v100",
        check=notified,
    ),
    Entry(line="make explain", typed=f"make explain ARCHIVE={H100}", check=has_words("output_tok_per_s")),
    Entry(line="make replay", typed=f"make replay ARCHIVE={H100}", check=has_words("adaptive"), how="long"),
    Entry(line="tokenpeak replay", typed=f".venv/bin/tokenpeak replay {H100} --seeds 2", check=has_words("adaptive")),
    Entry(
        line="tokenpeak predict",
        typed=".venv/bin/tokenpeak predict meta-llama/Llama-3.1-8B-Instruct",
        check=has_words("tok"),
    ),
    Entry(
        line="tokenpeak load",
        typed=".venv/bin/tokenpeak load --workload-schema",
        check=has_words('"properties"'),
    ),
    Entry(line=".venv/bin/tokenpeak docs", check=has_words("docs/index.html")),
    Entry(line=".venv/bin/tokenpeak quality --help", check=has_words("record", "compare")),
    Entry(
        line="tokenpeak quality",
        typed=".venv/bin/tokenpeak quality compare --help",
        check=has_words("REFERENCE"),
    ),
    Entry(
        line="tokenpeak calibrate",
        typed=".venv/bin/tokenpeak calibrate --streams 4 --seconds 1",
        check=has_words("4"),
    ),
    Entry(line="make calibrate", check=has_words("streams"), how="long", timeout_s=300),
    Entry(line="make sweep", typed="make sweep SWEEP=door-sim", check=swept, timeout_s=300),
    Entry(line="make sweep", check=swept, how="long", timeout_s=900),
    Entry(line="make sweep SWEEP=rates", check=swept, how="long", timeout_s=1500),
    Entry(line="make sweep INVENTORY=cpu", check=would_run, how="dry"),
    Entry(line="make notebook", check=would_run, how="dry"),
    Entry(line="tokenpeak check", typed=".venv/bin/tokenpeak check", check=has_words("no mistake found")),
    Entry(line="tokenpeak schema", typed=".venv/bin/tokenpeak schema sweep", check=has_words('"properties"')),
    Entry(line="make wheel", check=wheel_is_there),
    Entry(
        line="pipx install dist/tokenpeak-0.1.0-py3-none-any.whl",
        typed=".venv/bin/python -m zipfile -l dist/tokenpeak-0.1.0-py3-none-any.whl",
        check=has_words("tokenpeak/shipped/playbooks/restore.yml"),
    ),
    Entry(
        line="tokenpeak init my-gpus --like v100",
        typed=".venv/bin/tokenpeak init ../my-gpus --like v100",
        check=exists("../my-gpus/inventory/v100/hosts.yml"),
    ),
    Entry(line="tokenpeak init", typed=".venv/bin/tokenpeak init ../my-gpus", check=has_words("kept")),
    Entry(line="tokenpeak demo", typed=".venv/bin/tokenpeak demo --end", check=has_words("sim-a100")),
    Entry(line="make clean", check=cleaned),
)
DEVELOP = (
    *("check", "test", "integration", "golden", "e2e", "bench", "faults", "chaos"),
    *("mutants", "many-nodes", "front-door", "wheel", "lock"),
)
"""Development targets: `make -n` expands them to commands that exist."""


def typed(entry: Entry, door: Door) -> str:
    """The line with its placeholders filled in."""
    line = entry.typed or entry.line
    for placeholder, value in door.ids.items():
        line = line.replace(placeholder, value)
    return line.replace("HOST ", f"{door.node.address} ").replace("INVENTORY=x", "INVENTORY=v100")


def in_background(entry: Entry, door: Door) -> Done:
    """Let it run until the check has passed, then Ctrl-C; its status is 0, or make's for an interrupt."""
    began = time.monotonic()
    process = door.start(entry.typed or entry.line)
    try:
        entry.check(door, Done(line=entry.line, status=0, said="", seconds=0))
    finally:
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    return Done(line=entry.line, status=process.returncode, said=said, seconds=time.monotonic() - began)
