"""Executed notebooks are results: a sweep's folder of the site, copied elsewhere, runs again in a real kernel."""

import json
import re
import shutil
import sys
import warnings
from pathlib import Path

import nbformat
import pytest

from tokenpeak.report.site.pages import pages_of_sweeps

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import papermill


@pytest.fixture(scope="module")
def sweep(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder of a site, copied to another place without the site."""
    (folder,) = small.glob("*-sim")
    return Path(shutil.copytree(folder, tmp_path_factory.mktemp("elsewhere") / "downloaded"))


def test_every_page_offers_its_notebook(sweep: Path) -> None:
    """The link of a page leads to the notebook that made it, with its outputs."""
    pages = [page for page in pages_of_sweeps() if (sweep / f"{page.name}.html").is_file()]
    assert {"index", "ranking", "interactions", "load", "requests", "energy", "claims", "trials"} == {
        page.name for page in pages
    }
    for page in pages:
        text = (sweep / f"{page.name}.html").read_text()
        (address,) = re.findall(r'<a href="([^"]+\.ipynb)" download>', text)
        notebook = nbformat.read(sweep / address, as_version=4)

        assert page.name == Path(address).stem
        assert any(cell.get("outputs") for cell in notebook.cells)


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

    def shown(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        return [(kind, str(output.data[kind])) for output in outputs if "data" in output for kind in ("text/html",)]

    assert shown(before)
    assert shown(before) == shown(after)
