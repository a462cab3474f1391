"""`make restore`, through the command."""

import pytest
from driven_home import Home


@pytest.mark.faults
@pytest.mark.faults_ci
def test_node_that_answers_an_error_is_named_with_it(home: Home) -> None:
    """What is wrong on the node is said in the node's own sentence, with an exit status, and no traceback."""
    probed = home.run("probe", "--inventory", "lone")
    assert 0 == probed.returncode, probed.stdout
    folder = home.state / "nodes" / "one"
    mode = folder.stat().st_mode
    folder.chmod(0o777)

    wrong = home.run("restore", "--inventory", "lone")
    folder.chmod(mode)
    right = home.run("restore", "--inventory", "lone")

    assert 1 == wrong.returncode
    assert (
        f"one: whether production is back is not known: The state folder {folder} is in the hands of others"
        in wrong.stdout
    )
    assert "Traceback" not in wrong.stdout
    assert 0 == right.returncode, right.stdout
