"""notebooks/colab.ipynb, run from top to bottom as a user runs it."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "colab.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
QUARTER_OF_AN_HOUR = 900  # seconds


def test_the_notebook_is_short_and_holds_no_results():
    assert 5 < len(CELLS) < 15
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each code cell showed as text, and the seconds that all of them took; in a folder and cache of its own."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    place = tmp_path_factory.mktemp("notebook")
    # As users compile, not as the other tests do; and the tree and its commands before whatever else is installed.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "XLA"))}
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ours = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "PATH": commands, "RAG_JAX_CACHE": str(place / "cache")}
    client = nbclient.NotebookClient(
        nbformat.read(NOTEBOOK, as_version=4), timeout=QUARTER_OF_AN_HOUR, resources={"metadata": {"path": str(place)}}
    )
    start = time.monotonic()
    found = client.execute(env=inherited | ours)
    seconds = time.monotonic() - start
    print(f"the notebook took {seconds:.0f} seconds")
    return ["".join(map(shown, cell.outputs)) for cell in found.cells if cell.cell_type == "code"], seconds


def shown(output):
    """A printed text, or the plain form of a value."""
    return output.get("text") or "".join(output.get("data", {}).get("text/plain", ""))


@pytest.mark.slow
def test_it_runs_in_a_quarter_of_an_hour(ran):
    assert ran[1] < QUARTER_OF_AN_HOUR


@pytest.mark.slow
def test_world_facts_is_answered_right(ran):
    assert "Uhuru Kenyatta" in ran[0][1]
    assert "Santiago" in ran[0][1]


@pytest.mark.slow
def test_fine_tuning_answers_more_questions_on_documents_that_were_not_asked_about(ran):
    share = {name: float(value) for name, value in re.findall(r"^(.+?) +(\d\.\d\d)$", ran[0][4], re.MULTILINE)}
    print(f"shares answered right: {share}")
    assert len(share) == 3
    assert min(share["frozen retriever"], share["trained retriever"]) >= share["as it ships"] + 0.2


@pytest.mark.slow
def test_the_swapped_index_gives_another_answer_and_the_checkpoint_the_same(ran):
    before, after = re.search(r": (.+), then (.+)$", ran[0][5], re.MULTILINE).groups()
    assert before != after
    assert "model.safetensors" in ran[0][6]
    assert after in ran[0][6]
