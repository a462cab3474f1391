"""One entry for each documented command: what is typed, how it must end, and what its words are compared with."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tests.front_door.door import MODEL, Done, Door

Check = Callable[[Door, Done], None]
FIXTURES = Path("tests") / "exchange" / "fixtures"
BY_HAND = ".venv/bin/ansible-playbook -i inventory/v100 playbooks"
H100 = "analysis/landscapes/search-h100.tar.zst"


@dataclass(frozen=True)
class Entry:
    """`line` as documented; `typed` where it names a placeholder or a small sweep stands for a long one.

    `how`: `run`; `dry` (`make -n`, what it would run exists); `long` (only with FRONT_DOOR=long, else dry); `node`
    (typed on the node); `background` (runs until Ctrl-C; `check` is asked while it runs); `ctrl-c` (interrupted).
    """

    line: str
    check: Check
    _: KW_ONLY
    typed: str | None = None
    how: str = "run"
    status: int = 0
    timeout_s: float = 300.0
    """Of something that hangs: on a busy machine a command takes several times as long."""
    word: str = ""
    """For `ctrl-c`: it is interrupted once this is printed."""
    verdict: str = ""
    """A pattern, of a judgement that another load on the machine explains: where it is printed, the line is typed
    again, as a user would at a quieter time, three times in all."""


BAKED = r"PUT BACK \(in baking\)|NOT BEGUN \(in observing\)"


def says(done: Done, *words: str) -> None:
    """The words are among what was printed."""
    for word in words:
        assert word in done.said, f"{word!r} is not said:\n{done.said[-3000:]}"


def status_is_true(door: Door, done: Done) -> None:
    """It says that production serves MODEL exactly when production answers by MODEL."""
    served = door.served()
    assert (f"serves {MODEL}" in done.said) == (served == MODEL), f"served is {served}:\n{done.said[-3000:]}"


def status_at_first(door: Door, done: Done) -> None:
    """Before the first contact, a node whose key is unknown is not talked to."""
    assert "serves" not in done.said
    assert re.search("[Hh]ost key", done.said), done.said[-3000:]


def restored(door: Door, done: Done) -> None:
    """It says how production stands, and production stands so."""
    says(done, "v100-1:")
    assert "NOT restored" not in done.said
    assert MODEL == door.served()


def probed(door: Door, done: Done) -> None:
    """The hardware is what nvidia-smi on the node says, and production is as it was."""
    names = door.node.sh("/usr/bin/nvidia-smi", "--query-gpu=name", "--format=csv,noheader").split("\n")
    # The table breaks its cells at the terminal's width.
    says(done, next(name for name in names if name).split()[-1], MODEL.partition("/")[0])
    assert door.marks["started"] == door.started()


def measured_by_hand(door: Door, done: Done) -> None:
    """The client's own files say what it measured, and production serves again."""
    says(done, "Launch the engine in production's place", "Run the load client", "failed=0")
    measured = list((door.clone / "trial.d").rglob("requests.parquet"))
    assert 1 == len(measured), done.said[-3000:]
    assert MODEL == door.served()
    before, door.marks["started"] = door.marks["started"], door.started()
    assert before != door.marks["started"], "production was stopped for the trial"


def planned(door: Door, done: Done) -> None:
    """The matrix adds up."""
    total, feasible, dropped = map(int, re.findall(r"(\d+) configs = (\d+) feasible.* \+ (\d+) dropped", done.said)[0])
    assert total == feasible + dropped


def swept(door: Door, done: Done) -> None:
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


def interrupted(door: Door, done: Done) -> None:
    """It prints how to go on, and production serves as soon as it has ended."""
    assert MODEL == door.served(), done.said[-2000:]
    door.ids["20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c"] = re.findall(
        r"tokenpeak sweep --resume (\S+)", done.said
    )[-1]


def change_is_shown(door: Door, done: Done) -> None:
    """The difference is shown, and production is the same process as before."""
    says(done, "v100-1", "Nothing was changed.")
    assert re.search(r"^[+-]  --", done.said, re.MULTILINE), done.said[-2000:]
    assert door.arguments() == door.marks.setdefault("arguments", door.arguments())


def applied(door: Door, done: Done) -> None:
    """It says that it was confirmed, production answers, and its process has the flag that was shown."""
    says(done, "v100-1: CONFIRMED")
    assert MODEL == door.served()
    assert "--max-num-seqs 8" in door.arguments()
    assert "--max-num-seqs" not in door.marks["arguments"]
    records = list((door.clone / "results").glob("*/applies/*.json"))
    assert records


def change_is_shown_of_rollback(door: Door, done: Done) -> None:
    """The difference back is shown, and production has the applied definition still."""
    says(done, "rollback of apply", "Nothing was changed.", "-  --max-num-seqs 8")
    assert "--max-num-seqs 8" in door.arguments()


def rolled_back(door: Door, done: Done) -> None:
    """Production has the command line that it had before the apply."""
    says(done, "v100-1: CONFIRMED")
    assert MODEL == door.served()
    assert door.marks["arguments"] == door.arguments()


def gate_is_planned(_: Door, done: Done) -> None:
    """It says what so many launches find, and what the asked regression takes."""
    sizes = re.findall(r"n=\d+: [\d.]+%", done.said)
    needed = re.search(r"To find a regression of 30.0% in every figure: (\d+) (?:new )?launches", done.said)
    assert sizes and needed, done.said[-3000:]


def notified(door: Door, done: Done) -> None:
    """The receiver says that it got the event, and has it."""
    says(done, "got it")
    assert "test" == json.loads((door.clone / "notified.json").read_text())["event"]


def site_is_there(door: Door, done: Done) -> None:
    """The index is there and names what was asked for: the archive's device, or each sweep of results."""
    index = door.clone / "site" / "build" / "index.html"
    assert index.is_file()
    wanted = ["H100"] if H100 in done.line else [path.name for path in door.sweeps()]
    assert wanted
    assert [] == [name for name in wanted if name not in index.read_text()]


def served_site(door: Door, _: Done) -> None:
    """The site is served."""
    assert "<html" in door.page("http://127.0.0.1:8050/index.html")


def ingested(door: Door, done: Done) -> None:
    """It counts as many trials as there are files."""
    trials = sum(len(list((path / "trials").glob("*.json"))) for path in door.sweeps())
    assert f" {trials} trials" in done.said, (trials, done.said[-1000:])


def published(door: Door, _: Done) -> None:
    """The pages are where they were sent."""
    assert (door.place / "www" / "index.html").is_file()


def packed(door: Door, _: Done) -> None:
    """The file is there and is a zstd frame."""
    packs = list((door.clone / "results").glob("*.tar.zst"))
    assert packs
    assert b"\x28\xb5\x2f\xfd" == packs[0].read_bytes()[:4]


def imported(door: Door, done: Done) -> None:
    """The archive that it names is there."""
    path = Path(re.findall(r"into (\S+)", done.said)[0])
    assert (door.clone / path / "sweep.json").is_file()


def exported(door: Door, done: Done) -> None:
    """It counts the files that it has written."""
    count = int(re.findall(r"Wrote (\d+) files", done.said)[0])
    assert count <= len([path for path in (door.clone / "exported").rglob("*") if path.is_file()])


def has_words(*words: str) -> Check:
    """A check that these are printed."""

    def check(_: Door, done: Done) -> None:
        says(done, *words)

    return check


def exists(path: str) -> Check:
    """A check that a file of the clone is there."""

    def check(door: Door, _: Done) -> None:
        assert (door.clone / path).exists()

    return check


def would_run(_: Door, done: Done) -> None:
    """Make -n expands it."""
    assert done.said.strip()


def key_is_known(door: Door, _: Done) -> None:
    """The node's key is in the user's file."""
    assert door.node.address in (door.home / ".ssh" / "known_hosts").read_text()


def same_fingerprint(door: Door, done: Done) -> None:
    """The fingerprint read here is the one read on the node."""
    print_ = re.findall(r"SHA256:\S+", done.said)[-1]
    assert door.marks.setdefault("fingerprint", print_) == print_


def installed(door: Door, _: Done) -> None:
    """The guard's units are on the node, and production is as it was."""
    assert "tokenpeak-guard-" in door.node.sh("ls", "/etc/systemd/system")
    assert door.marks["started"] == door.started()


def rotated(door: Door, done: Done) -> None:
    """The node has another secret than before, and production is as it was."""
    before, now = door.marks.get("secrets", ""), door.secrets()
    assert now
    assert before != now, done.said
    door.marks["secrets"] = now
    assert MODEL == door.served()


def uninstalled(door: Door, done: Done) -> None:
    """Nothing of TokenPeak's is on the node's disk, and production is as it was."""
    says(done, "v100-1:")
    assert door.marks["files"] == door.own_files()
    assert MODEL == door.served()


def not_there(_: Door, done: Done) -> None:
    """A node that has nothing of ours is reported to have nothing."""
    says(done, "v100-1: TokenPeak is not on this node.")


def wheel_is_there(door: Door, _: Done) -> None:
    """There is one wheel."""
    assert 1 == len(list((door.clone / "dist").glob("*.whl")))


def cleaned(door: Door, _: Done) -> None:
    """The environment is gone, results stay."""
    assert not (door.clone / ".venv").exists()
    assert door.sweeps()


def found(door: Door, done: Done) -> None:
    """The inventory that was written names the unit and the model that the node serves; production is as it was."""
    written = (door.clone / "inventory" / "found" / "group_vars" / "all.yml").read_text()
    assert "unit: vllm.service" in written, written
    assert MODEL in written, written
    assert door.node.address in (door.clone / "inventory" / "found" / "hosts.yml").read_text()
    assert door.marks["started"] == door.started()


def counted(door: Door, done: Done) -> None:
    """Postgres has as many trials as there are files."""
    trials = sum(len(list((path / "trials").glob("*.json"))) for path in door.sweeps())
    assert re.search(rf"^ *{trials}$", done.said, re.MULTILINE), (trials, done.said)


def nothing_went(door: Door, done: Done) -> None:
    """No archive is gone."""
    says(done, "Nothing to remove")
    assert door.sweeps()


SMALL = "make sweep INVENTORY=v100 SWEEP=door"
ENTRIES = (
    Entry("make setup", exists(".venv/bin/tokenpeak")),
    Entry("make help", has_words("make sweep", "Variables")),
    Entry(".venv/bin/tokenpeak --help", has_words("Commands:")),
    Entry("make plan INVENTORY=v100", planned),
    Entry("make plan", planned),
    Entry("make status INVENTORY=v100", status_at_first, status=1),
    Entry("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", same_fingerprint, how="node"),
    Entry("ssh-keyscan -t ed25519 HOST > node.key && ssh-keygen -lf node.key", same_fingerprint),
    Entry("cat node.key >> ~/.ssh/known_hosts", key_is_known),
    Entry("make probe INVENTORY=v100", probed),
    Entry("make probe", probed, typed="make probe INVENTORY=v100"),
    Entry(
        "tokenpeak init --probe me@HOST", found, typed=".venv/bin/tokenpeak init --probe root@HOST --inventory found"
    ),
    Entry(f"{BY_HAND}/probe.yml -v", probed),
    Entry(
        ".venv/bin/tokenpeak plan --inventory v100 --trial trial.json",
        exists("trial.json"),
        typed=".venv/bin/tokenpeak plan --inventory v100 --sweep door --trial trial.json",
    ),
    Entry(f"{BY_HAND}/trial.yml -e @trial.json", measured_by_hand),
    Entry(f"{BY_HAND}/restore.yml", has_words("failed=0")),
    Entry("make install INVENTORY=x INSTALL_USER=root", installed),
    Entry("make install", installed, typed="make install INVENTORY=x INSTALL_USER=root"),
    Entry("make status INVENTORY=v100", status_is_true),
    Entry("make restore INVENTORY=v100", restored),
    Entry("make sweep INVENTORY=v100", interrupted, typed=SMALL, how="ctrl-c", status=130, word=" begins"),
    Entry("make sweep RESUME=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c", swept),
    # The small sweep has one config, of which nothing is known to be better: it is named.
    Entry(
        "make apply SWEEP_ID=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c",
        change_is_shown,
        typed="make apply SWEEP_ID=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c CONFIG=max_num_seqs=8",
    ),
    Entry(
        "make apply",
        applied,
        typed="make apply SWEEP_ID=20261121-010000-v100-deepseek-r1-32b-v100-4f2a9c CONFIG=max_num_seqs=8 YES=1",
        verdict=BAKED,
    ),
    Entry("make rollback INVENTORY=v100", change_is_shown_of_rollback),
    Entry("make rollback", rolled_back, typed="make rollback INVENTORY=v100 YES=1", verdict=BAKED),
    Entry("make sweep INVENTORY=v100", swept, typed=SMALL),
    Entry(
        "tokenpeak sweep --inventory v100",
        swept,
        typed=".venv/bin/tokenpeak sweep --inventory v100 --sweep door.yml",
    ),
    Entry("make status", status_is_true, typed="make status INVENTORY=v100"),
    Entry("make restore", restored, typed="make restore INVENTORY=v100"),
    Entry("make install INVENTORY=x ROTATE=1", rotated, typed="make install INVENTORY=x ROTATE=1 INSTALL_USER=root"),
    Entry(
        "tokenpeak install --inventory x --rotate",
        rotated,
        typed=".venv/bin/tokenpeak install --inventory v100 --user root --rotate",
    ),
    Entry("make status", status_is_true, typed="make status INVENTORY=v100"),
    Entry("make uninstall INVENTORY=x", uninstalled, typed="make uninstall INVENTORY=x INSTALL_USER=root"),
    Entry(
        "tokenpeak uninstall --load-hosts",
        not_there,
        typed=".venv/bin/tokenpeak uninstall --inventory v100 --user root --load-hosts",
    ),
    Entry("make report", site_is_there),
    Entry("make serve", served_site, how="background", word="http"),
    Entry("tokenpeak ingest", ingested, typed=".venv/bin/tokenpeak ingest results"),
    Entry("tokenpeak sql", counted, typed='.venv/bin/tokenpeak sql "SELECT count(*) FROM v_trials"'),
    Entry(
        "tokenpeak database status",
        has_words("It has this version's tables."),
        typed=".venv/bin/tokenpeak database status",
    ),
    Entry("tokenpeak prune", nothing_went, typed=".venv/bin/tokenpeak prune --keep 99 --dry-run"),
    Entry(
        "tokenpeak completion bash",
        has_words("tokenpeak"),
        typed='eval "$(.venv/bin/tokenpeak completion bash)"; complete -p tokenpeak',
    ),
    Entry("make publish", published, typed="make publish TARGET=dir DEST=../www"),
    Entry("tokenpeak archive", packed, typed=".venv/bin/tokenpeak archive SWEEP"),
    Entry("tokenpeak import", imported, typed=f".venv/bin/tokenpeak import {FIXTURES}/vllm-plain.json"),
    Entry("tokenpeak export", exported, typed=".venv/bin/tokenpeak export results"),
    Entry(f"make report ARCHIVE={H100}", site_is_there),
    Entry(
        "tokenpeak gate",
        gate_is_planned,
        typed=".venv/bin/tokenpeak gate --plan --regression 0.3 --against analysis/landscapes/landscape-cpu.tar.zst",
    ),
    Entry(
        "tokenpeak notify",
        notified,
        typed='echo "tokenpeak_notify: [{command: [tee, $PWD/notified.json]}]" >> inventory/v100/group_vars/all.yml'
        " && .venv/bin/tokenpeak notify --inventory v100",
    ),
    Entry("tokenpeak explain", has_words("output_tok_per_s"), typed=f".venv/bin/tokenpeak explain {H100}"),
    Entry("tokenpeak replay", has_words("adaptive"), typed=f".venv/bin/tokenpeak replay {H100} --seeds 2"),
    Entry("tokenpeak predict", has_words("tok"), typed=".venv/bin/tokenpeak predict meta-llama/Llama-3.1-8B-Instruct"),
    Entry(
        "tokenpeak load",
        has_words("nothing listens at 127.0.0.1:9"),
        typed=".venv/bin/tokenpeak load http://127.0.0.1:9 --model m --concurrency 1 --requests 1",
        status=1,
    ),
    Entry(".venv/bin/tokenpeak docs", has_words("docs/index.html")),
    Entry(".venv/bin/tokenpeak quality --help", has_words("record", "compare")),
    Entry("tokenpeak quality", has_words("REFERENCE"), typed=".venv/bin/tokenpeak quality compare --help"),
    Entry("tokenpeak calibrate", has_words("4"), typed=".venv/bin/tokenpeak calibrate --streams 4 --seconds 1"),
    Entry("make calibrate", has_words("streams"), how="long"),
    Entry("make sweep", swept, typed="make sweep SWEEP=door-sim"),
    # Nobody asks the simulated production anything.
    Entry(
        "tokenpeak observe",
        has_words("too little to tune for"),
        typed=".venv/bin/tokenpeak observe --inventory sim --node sim-h100 --for 2s",
        status=1,
    ),
    Entry("make sweep", swept, how="long", timeout_s=900),
    Entry("make sweep SWEEP=rates", swept, how="long", timeout_s=1500),
    Entry("make sweep INVENTORY=cpu", would_run, how="dry"),
    Entry("make notebook", would_run, how="dry"),
    Entry("tokenpeak check", has_words("no mistake found"), typed=".venv/bin/tokenpeak check"),
    Entry("tokenpeak schema", has_words('"properties"'), typed=".venv/bin/tokenpeak schema sweep"),
    Entry("make wheel", wheel_is_there),
    Entry(
        "pipx install dist/tokenpeak-0.1.0-py3-none-any.whl",
        has_words("tokenpeak/shipped/playbooks/restore.yml"),
        typed=".venv/bin/python -m zipfile -l dist/tokenpeak-0.1.0-py3-none-any.whl",
    ),
    Entry(
        "tokenpeak init my-gpus --like v100",
        exists("../my-gpus/inventory/v100/hosts.yml"),
        typed=".venv/bin/tokenpeak init ../my-gpus --like v100",
    ),
    Entry("tokenpeak init", has_words("kept"), typed=".venv/bin/tokenpeak init ../my-gpus"),
    Entry(
        "tokenpeak tune",
        has_words("Will do:", "Give --yes to begin"),
        typed=".venv/bin/tokenpeak tune --host root@HOST --sweep door",
        status=2,
    ),
    Entry("tokenpeak demo", has_words("sim-a100"), typed=".venv/bin/tokenpeak demo --end"),
    Entry("make clean", cleaned),
)
DEVELOP = (
    *("check", "test", "integration", "golden", "e2e", "bench", "faults", "chaos"),
    *("many-nodes", "front-door", "wheel", "lock"),
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
