"""The notebooks run, with few steps in place of many; what is stored in them is of a run without an error."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need the extra docs")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
FEW = {"PRETRAINING_STEPS": "4", "EPOCHS": "0.05"}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.name)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_they_are_small():
    assert NOTEBOOKS and all(path.stat().st_size < 300_000 for path in NOTEBOOKS)


def test_results_of_one_run_are_stored(notebook):
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|work|tmp|Users)/", str(outputs))


def test_links_lead_somewhere(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    for target in targets:
        assert (ROOT / "docs" / "notebooks" / target).is_file(), target


@pytest.mark.slow
def test_it_runs(notebook, tmp_path):
    pytest.importorskip("ipykernel", reason="running notebooks needs the extra dev")
    client = pytest.importorskip("nbclient", reason="running notebooks needs the extra dev").NotebookClient
    (settings,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, value in FEW.items():
        settings.source, found = re.subn(rf"^{name} = .+$", f"{name} = {value}", settings.source, flags=re.MULTILINE)
        assert found == 1
    client(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()]
