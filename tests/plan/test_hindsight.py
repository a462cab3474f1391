import pytest
from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.predict import explain
from tokenpeak.records import TrialRecord
from tokenpeak.store.archive import Archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A synthetic sweep with failures, replicates and predictions."""
    path = tmp_path_factory.mktemp("archives") / "a"
    make_archive(path)
    return Archive(path)


def trials_of(archive: Archive) -> list[TrialRecord]:
    return list(archive.trials())


def test_explains_an_archive_in_sentences(archive: Archive) -> None:
    """`tokenpeak explain` prints the error per metric for each kind of hardware, and marks simulated results."""
    result = CliRunner().invoke(explain, [str(archive.path)], catch_exceptions=False)

    assert 0 == result.exit_code
    assert "prediction of output_tok_per_s: measured ÷ predicted" in result.stdout
    assert "(simulated)" in result.stdout
