"""`make restore`, through the command."""

from driven_home import Home


def test_node_that_answers_an_error_is_named_with_it(home: Home) -> None:
    """What is wrong on the node is said in the node's own sentence, with an exit status, and no traceback."""
    probed = home.run("probe", "--inventory", "lone")
    assert 0 == probed.returncode, probed.stdout
    declaration = home.state / "nodes" / "one" / "node.json"
    whole = declaration.read_bytes()
    declaration.write_text("[]")

    wrong = home.run("restore", "--inventory", "lone")
    declaration.write_bytes(whole)
    right = home.run("restore", "--inventory", "lone")

    assert 1 == wrong.returncode
    assert f"one: NOT restored: {declaration} holds no JSON object: look at it, then remove it.\n" == wrong.stdout
    assert 0 == right.returncode, right.stdout
