import pytest

from rag_jax.text.datasets import load_collection, spread
from rag_jax.text.readers import read_passages
from rag_jax.text.table import PassageTable
from rag_jax.types import Question


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("# Ithaca\n\n" + "island " * 150, "utf-8")
    return tmp_path / "documents"


def test_documents_are_a_collection(folder):
    collection = load_collection("files", passages_path=str(folder))
    assert [passage.id for passage in collection.passages] == ["a.md#0", "a.md#1"]
    assert not collection.train
    assert not collection.evaluation


def test_a_table_on_disk_is_a_collection_and_stays_there(folder, tmp_path):
    written = PassageTable.write(tmp_path / "table", read_passages(folder))
    collection = load_collection("files", passages_path=str(tmp_path / "table"))
    assert isinstance(collection.passages, PassageTable)
    assert collection.passages.fingerprint == written.fingerprint


def test_passages_that_are_missing_are_asked_for():
    with pytest.raises(ValueError, match="passages_path: data set 'files' needs passages"):
        load_collection("files")


@pytest.mark.parametrize("dataset", ["files", "world_facts"])
def test_passages_that_nobody_looks_for_are_not_read(tmp_path, dataset):
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "who?", "answers": ["me"]}\n')
    paths = {"questions_path": str(tmp_path / "q.jsonl"), "passages_path": str(tmp_path / "gone.tsv")}
    collection = load_collection(dataset, **paths, with_passages=False)
    assert (len(collection.passages), [q.text for q in collection.train]) == (0, ["who?"])


def test_spread_takes_questions_from_everywhere():
    questions = [Question(str(i), "?") for i in range(10)]
    assert [q.id for q in spread(questions, 3)] == ["0", "3", "6"]
    assert len(spread(questions, None)) == len(spread(questions, 99)) == 10
