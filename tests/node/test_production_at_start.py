"""What production was is decided when the sweep begins, whatever happens to it between two trials."""

import pytest
from tests.node.conftest import Node
from tests.node.test_broken_state import answers

from tokenpeak.node.production.managers.systemd import loss

SERVED = {"running": True, "model": "prod"}


def first_trial(node: Node) -> None:
    """Production serves, and the sweep has had a trial on the node, which it keeps."""
    node.serve()
    node.run("launch", node.launch_request())
    assert node.run("finish", node.finish_request(keep_lock=True))["restoration"]["restored"]


def test_production_that_crashed_between_two_trials(node: Node) -> None:
    """The next trial brings it back, and says that it had ended by itself."""
    first_trial(node)
    node.stop_production()
    assert not answers(node)

    launched = node.run("launch", node.launch_request(production_at_start=SERVED))
    finished = node.run("finish", node.finish_request())

    assert launched["production_found_down"], launched
    assert finished["restoration"]["restored"], finished
    assert finished["restoration"]["was_running"]
    assert answers(node)


def test_production_that_crashed_after_the_last_trial(node: Node) -> None:
    """The sweep's end starts it again."""
    first_trial(node)
    node.stop_production()

    restoration = node.run("restore", {"holder": "sweep-1", "production_at_start": SERVED})["restoration"]

    assert restoration["restored"], restoration
    assert "ended by itself" in restoration["message"]
    assert answers(node)


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ({"FragmentPath": "/etc/systemd/system/vllm.service", "UnitFileState": "enabled"}, None),
        ({"FragmentPath": "/run/systemd/transient/vllm.service", "Transient": "yes"}, "transient"),
        ({"FragmentPath": "/run/systemd/system/vllm.service", "UnitFileState": "static"}, "which a boot removes"),
        ({"FragmentPath": "/run/systemd/generator/vllm.service", "UnitFileState": "generated"}, None),
        ({"FragmentPath": "", "SourcePath": "/etc/init.d/vllm", "UnitFileState": "generated"}, None),
        ({"FragmentPath": "/etc/systemd/system/vllm.service", "UnitFileState": "masked"}, "unmask"),
        ({"FragmentPath": "/etc/systemd/system/vllm.service", "LoadState": "masked"}, "unmask"),
        ({"FragmentPath": ""}, "no unit file any more"),
    ],
)
def test_units_that_would_be_lost(shown: dict[str, str], words: str | None) -> None:
    """A unit that its stop or a boot deletes is refused; one that is generated anew at each boot is not."""
    problem = loss("vllm.service", {"LoadState": "loaded", **shown})

    assert (words is None) == (problem is None), problem
    assert (words or "") in (problem or "")
