from tokenpeak.errors import suggestion


def test_near_word_is_suggested() -> None:
    """A misspelling is answered with the words nearest to it."""
    assert "Did you mean restore?" == suggestion("restor", ["restore", "sweep", "plan"])


def test_far_word_lists_all() -> None:
    """A word like none of those known is answered with all of them, sorted."""
    assert "Known: plan, sweep." == suggestion("zzz", ["sweep", "plan"])


def test_nothing_known_is_said() -> None:
    """Where nothing is known, that is what is said."""
    assert "None is known." == suggestion("x", [])
