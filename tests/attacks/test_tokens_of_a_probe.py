"""`tuner` probes the node, and reads tokens that the inventory declares for others.

The answer had the whole declaration but for the engine's and production's environments: webhooks of notifications, the
commands of drain and meter. It has what a controller goes by, and nothing else.
"""

import json
from pathlib import Path

from tokenpeak.node.machine.state import State
from tokenpeak.node.probe.facts import probe

TOKEN = "T0KEN"
BUILD = {"image": "vllm:1", "args": ["--env", f"HF_TOKEN={TOKEN}", f"--env=MY_SECRET={TOKEN}", "--ipc", "host"]}
DECLARATION = {
    "node": "gpu-1",
    "host": "127.0.0.1",
    "port": 8099,
    "model": {"name": "m", "served_name": "m", "path": None},
    "limits": {"lease_max_s": 60},
    "state_dir": "/var/lib/tokenpeak",
    "python": "/usr/bin/python3",
    "engine": {"user": "nobody", "env": {"HF_TOKEN": TOKEN}},
    "engines": [{"name": "new", "build": BUILD}],
    "production": {
        "manager": "command",
        "start": ["/bin/true", "--x", TOKEN],
        "stop": ["/bin/true", "--x", TOKEN],
        "check": ["/bin/true", "--x", TOKEN],
        "answers_with": "command",
        "answer_command": ["/bin/true", "--x", TOKEN],
    },
    "notify": [{"webhook": f"https://hooks.example/{TOKEN}"}, {"command": ["/bin/true", TOKEN]}],
    "drain": {"before": ["/bin/true", TOKEN], "after": ["/bin/true", TOKEN], "wait": {"seconds": 1}},
    "power_command": ["/bin/echo", "1", "W", "#", TOKEN],
    "textfile_dir": f"/{TOKEN}",
    "bake": {"x": TOKEN},
}


def test_answer_has_no_token(tmp_path: Path) -> None:
    """But all that a controller needs which may only run the command."""
    answer = json.loads(json.dumps(probe(State.make(tmp_path / "state"), DECLARATION).declaration))

    assert TOKEN not in json.dumps(answer)
    kept = ("node", "host", "port", "model", "limits", "state_dir", "python")
    assert {name: DECLARATION[name] for name in kept} == {name: answer[name] for name in kept}
    assert {"engines", "production"} == set(answer) - set(kept)
    assert ["--ipc", "host"] == answer["engines"][0]["build"]["args"][-2:]
