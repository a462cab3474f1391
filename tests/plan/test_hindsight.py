from pathlib import Path

from click.testing import CliRunner

from archive_factory import make_archive
from tokenpeak.cli.predict import explain


def test_explains_an_archive_in_sentences(tmp_path: Path) -> None:
    """`tokenpeak explain` prints the error per metric for each kind of hardware, and marks simulated results."""
    result = CliRunner().invoke(explain, [str(make_archive(tmp_path / "a").path)], catch_exceptions=False)

    assert 0 == result.exit_code
    assert "prediction of output_tok_per_s: measured ÷ predicted" in result.stdout
    assert "(simulated)" in result.stdout
