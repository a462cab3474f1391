"""Executed notebooks are results: a sweep's folder of the site, copied elsewhere, runs again in a real kernel."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import nbformat
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import papermill


@pytest.fixture(scope="module")
def sweep(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder of a site, copied to another place without the site."""
    (folder,) = small.glob("*-sim")
    return Path(shutil.copytree(folder, tmp_path_factory.mktemp("elsewhere") / "downloaded"))


@pytest.mark.integration
def test_it_runs_again_in_a_kernel(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Papermill starts a kernel of its own in the notebook's folder; the outputs are those of the site."""
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = sweep / "data" / "notebooks"
    before = nbformat.read(folder / "ranking.ipynb", as_version=4)
    after = papermill.execute_notebook(
        str(folder / "ranking.ipynb"),
        str(tmp_path / "again.ipynb"),
        cwd=str(folder),
        kernel_name="python3",
        progress_bar=False,
    )

    def shown(notebook: nbformat.NotebookNode) -> list[str]:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        return [str(output.data) for output in outputs if "data" in output]

    assert shown(before)
    assert shown(before) == shown(after)
