"""What a playbook's run on a node is said to have come to."""

from tokenpeak.sweep.ansible.result import failure_words


def test_node_that_hung_is_to_be_looked_at() -> None:
    """Ansible's own words for a task that ran out of time name neither a cause nor a remedy."""
    result = {"msg": "Task failed: Timed out after 120 second(s).", "timedout": {"period": 120}}

    said = failure_words("Read the node's status", result)

    assert "Read the node's status: nothing came back within 120 s: log in there and see what hangs" == said
