"""`tokenpeak check`: mistakes that people make in sweeps and inventories, each with its line and what to write."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import typed
from tokenpeak import paths
from tokenpeak.cli import tokenpeak
from tokenpeak.node.production.managers import MANAGERS
from tokenpeak.sweep.inventory.variables import MANAGER_KEYS, keys_of

SWEEP = """\
axes:
  max_num_seqs: [8, 64]
fixed:
  name: fixed
  flags:
    max_model_len: 2048
workloads:
  - workload: {kind: synthetic, name: short, input_tokens: 128, output_tokens: 64}
    levels:
      - {concurrency: 32, requests: 64}
objective: {metric: output_tok_per_s}
"""
DATASET = """\
workloads:
  - workload:
      kind: dataset
      name: mine
      path: PATH
      prompt_column: prompt
      output_tokens: 8
    levels:
      - {concurrency: 4, requests: 8}
"""
HOSTS = """\
all:
  hosts:
    gpu-1:
      ansible_host: 192.0.2.11
"""
VARIABLES = """\
ansible_user: root
tokenpeak_python: /usr/bin/python3
tokenpeak_state_dir: /var/lib/tokenpeak
tokenpeak_default_sweep: quick
tokenpeak_model: {name: org/model}
tokenpeak_engine_command: [/opt/vllm/bin/vllm, serve]
tokenpeak_host: "{{ ansible_host }}"
tokenpeak_port: 8099
tokenpeak_production:
  manager: systemd
  unit: vllm.service
"""

IN_SWEEPS = [
    (
        "duplicate key",
        "axes:\n  max_num_seqs: [8, 64]\n",
        "axes:\n  max_num_seqs: [8]\n  max_num_seqs: [64]\n",
        3,
        "twice",
    ),
    ("unknown flag", "  max_num_seqs:", "  max_num_seq:", 2, "Did you mean max_num_seqs"),
    (
        "no level",
        "{concurrency: 32, requests: 64}",
        "{concurency: 32, requests: 64}",
        10,
        "give concurrency, rate_per_s",
    ),
    ("a value that is no list", "[8, 64]", "8", 2, "must be a list of values"),
    ("a tab", "  max_num_seqs:", "\tmax_num_seqs:", 2, "YAML indents by spaces"),
    ("a line too far in", "  flags:\n", "   flags:\n", 5, "look at the indentation"),
    ("a colon in a text", "fixed:\n", "description: a: b\nfixed:\n", 3, "put it into quotes"),
    ("a bracket", "[8, 64]", "[8, 64", 3, "a bracket or brace that nothing closes"),
    ("seconds", "objective:", "slo: {ttft_p99_ms: 0.5}\nobjective:", 11, "of seconds write 500"),
    (
        "no config with adapters",
        "output_tokens: 64}",
        "output_tokens: 64, adapters: {base: 1, sql: 1}}",
        8,
        "asks the adapters sql, and no config has enable_lora: true",
    ),
    ("grams", "objective:", "energy: {kg_co2_per_kwh: 480}\nobjective:", 11, "of grams write 0.48"),
]
"""What it is, what stands there, what is written, the line, and words of the sentence."""

IN_VARIABLES = [
    (
        "mistyped variable",
        "tokenpeak_engine_command:",
        "tokenpeak_engine_comand:",
        6,
        "Did you mean tokenpeak_engine_command",
    ),
    ("unknown manager", "manager: systemd", "manager: sytemd", 10, "Did you mean systemd"),
    (
        "another manager's key",
        "  unit: vllm.service",
        "  unit: vllm.service\n  namespace: x",
        12,
        "takes no key namespace",
    ),
    ("no unit", "  unit: vllm.service\n", "", 9, "needs a unit"),
    ("unknown sweep", "sweep: quick", "sweep: quik", 4, "Did you mean quick"),
    (
        "a balancer's key",
        "tokenpeak_port: 8099",
        "tokenpeak_port: 8099\ntokenpeak_drain:\n  haproxy: {sokket: /run/haproxy}",
        10,
        "Did you mean socket",
    ),
]

IN_HOSTS = [
    ("host beside hosts", "    gpu-1:\n      ansible_host", "  gpu-1:\n    ansible_host", 3, "indent it below hosts"),
    ("variable beside its host", "      ansible_host", "    ansible_host", 4, "indent it below the name of its host"),
]


def checked(path: Path) -> tuple[int, list[str]]:
    """Exit status and lines of `tokenpeak check PATH`."""
    done = CliRunner().invoke(tokenpeak, ["check", str(path)])
    return done.exit_code, done.output.splitlines()


def assert_found(path: Path, line: int, words: str) -> None:
    """The command names the file, the line and what to do, once, and ends with 2."""
    status, said = checked(path)

    assert 2 == status
    assert [f"{path}:{line}:"] == [each.partition(" ")[0] for each in said[:-1]], said
    assert words in said[0]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The folder of an inventory without a mistake."""
    (tmp_path / "mine" / "group_vars").mkdir(parents=True)
    (tmp_path / "mine" / "hosts.yml").write_text(HOSTS)
    (tmp_path / "mine" / "group_vars" / "all.yml").write_text(VARIABLES)
    return tmp_path / "mine"


def changed(text: str, old: str, new: str) -> str:
    """The text with what stands in it once replaced."""
    assert 1 == text.count(old)
    return text.replace(old, new)


def test_files_without_a_mistake_are_good(tmp_path: Path, inventory: Path) -> None:
    """Exit status 0, and what was looked at."""
    (tmp_path / "good.yml").write_text(SWEEP)

    assert (0, ["1 sweep, 0 inventories: no mistake found"]) == checked(tmp_path / "good.yml")
    assert (0, ["0 sweeps, 1 inventory: no mistake found"]) == checked(inventory)


def test_variables_that_every_node_needs(inventory: Path) -> None:
    """Those that no file gives are named; one may stand at a host. An encrypted file may have any of them."""
    variables, hosts = inventory / "group_vars" / "all.yml", inventory / "hosts.yml"
    shorter = changed(VARIABLES, "tokenpeak_port: 8099\n", "")
    variables.write_text(changed(shorter, "tokenpeak_python: /usr/bin/python3\n", ""))
    assert_found(hosts, 1, f"its nodes have no tokenpeak_python, tokenpeak_port; give each in {variables}")

    hosts.write_text(f"{HOSTS}      tokenpeak_port: 8099\n")
    assert_found(hosts, 1, "its nodes have no tokenpeak_python; ")

    (inventory / "group_vars" / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    assert 0 == checked(inventory)[0]


@pytest.mark.parametrize(("what", "old", "new", "line", "words"), IN_SWEEPS, ids=[each[0] for each in IN_SWEEPS])
def test_a_mistake_in_a_sweep(tmp_path: Path, what: str, old: str, new: str, line: int, words: str) -> None:
    """Each is named with its line and a way out."""
    path = tmp_path / "bad.yml"
    path.write_text(changed(SWEEP, old, new))

    assert_found(path, line, words)


@pytest.mark.parametrize(("what", "old", "new", "line", "words"), IN_VARIABLES, ids=[each[0] for each in IN_VARIABLES])
def test_a_mistake_in_variables(inventory: Path, what: str, old: str, new: str, line: int, words: str) -> None:
    """Each is named with its line and a way out."""
    path = inventory / "group_vars" / "all.yml"
    path.write_text(changed(VARIABLES, old, new))

    assert_found(path, line, words)


def test_a_state_folder_that_is_the_controller_s(inventory: Path) -> None:
    """A node that is this machine has another state folder than the controller; one elsewhere may have the same."""
    path = inventory / "group_vars/all.yml"
    path.write_text(changed(VARIABLES, "/var/lib/tokenpeak", str(paths.state_dir())))
    assert 0 == checked(inventory)[0]
    path.write_text(f"ansible_connection: local\n{path.read_text()}")

    assert_found(path, 4, "is the controller's own state folder")


@pytest.mark.parametrize(("what", "old", "new", "line", "words"), IN_HOSTS, ids=[each[0] for each in IN_HOSTS])
def test_a_mistake_in_hosts(inventory: Path, what: str, old: str, new: str, line: int, words: str) -> None:
    """Each is named with its line and a way out."""
    path = inventory / "hosts.yml"
    path.write_text(changed(HOSTS, old, new))

    assert_found(path, line, words)


def test_a_missing_data_set(tmp_path: Path) -> None:
    """The line of the path."""
    path = tmp_path / "data.yml"
    path.write_text(DATASET.replace("PATH", str(tmp_path / "none.jsonl")))

    assert_found(path, 5, "does not exist; correct its path")


def test_helpers_of_templates_are_known(inventory: Path) -> None:
    """A variable that another one's template uses is no mistake."""
    text = VARIABLES.replace('"{{ ansible_host }}"', '"{{ tokenpeak_net }}.1"') + "tokenpeak_net: 10.0.0\n"
    (inventory / "group_vars" / "all.yml").write_text(text)

    assert 0 == checked(inventory)[0]


def test_all_examples_are_without_a_mistake() -> None:
    """Without FILE, everything in the working folder is looked at."""
    done = CliRunner().invoke(tokenpeak, ["check"])

    assert 0 == done.exit_code, done.output


def test_plan_refuses_what_check_finds(inventory: Path, tmp_path: Path) -> None:
    """The same sentences, before anything is planned."""
    sweep = tmp_path / "bad.yml"
    sweep.write_text(changed(SWEEP, "max_model_len: 2048", "gpu_memory_utilization: 92"))
    done = typed("plan", "--inventory", "sim", "--sweep", str(sweep))

    assert 2 == done.returncode
    assert f"{sweep}:6: fixed: gpu_memory_utilization 92 is not a share between 0 and 1; write 0.92" in done.stderr


def test_managers_and_their_keys_are_those_documented() -> None:
    """The table of playbooks/README.md has each manager with its keys, and the node knows each manager."""
    text = (paths.PLAYBOOKS / "README.md").read_text().partition("## tokenpeak_production\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", text, re.MULTILINE)
    documented = {
        manager: set(re.findall(r"`(\w+)`", keys))
        for names, keys in rows
        for manager in re.findall(r"\w+", names)
        if rows.index((names, keys)) < len(MANAGER_KEYS) - 1  # Docker's and Podman's is one row; other tables follow.
    }

    assert set(MANAGER_KEYS) <= set(MANAGERS)
    # In this section every word with an underscore is a key.
    assert set() == set(re.findall(r"`([a-z]+_[a-z_]+)`", text)) - {
        key for name in MANAGER_KEYS for key in keys_of(name)
    }
    for manager, keys in MANAGER_KEYS.items():
        assert set(keys) <= documented[manager], manager


CHATS = """\
axes:
  enable_prefix_caching: [true, false]
workloads:
  - workload: {kind: dataset, name: mine, endpoint: chat, path: PATH, output_tokens: 8}
    levels:
      - {concurrency: 4, requests: 8}
"""


def test_an_axis_that_chats_asked_at_once_cannot_show(tmp_path: Path) -> None:
    """The note names axis and option, in the workload's line; asked turn by turn, or of one turn, there is none."""
    turn = '{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}'
    chats = tmp_path / "chats.jsonl"
    chats.write_text(f'{{"messages": [{turn}, {turn}]}}\n{{"messages": [{turn}]}}\n')
    path = tmp_path / "mine.yml"
    fixed, _, rest = SWEEP.partition("fixed:")[2].partition("workloads:")
    written = CHATS.replace("PATH", str(chats)) + f"fixed:{fixed}{rest[rest.index('objective:') :]}"
    path.write_text(written)
    status, said = checked(path)

    note = "1 of the 2 chats of 'mine' have several turns, and each is asked as one request: axis enable_prefix_caching"
    assert (0, True) == (status, said[0].startswith(f"NOTE {path}:4: {note}"))
    for before, after in (("output_tokens", "turn_by_turn: true, output_tokens"), ("true, false", "true")):
        path.write_text(written.replace(before, after, 1))
        assert "NOTE" not in " ".join(checked(path)[1])
