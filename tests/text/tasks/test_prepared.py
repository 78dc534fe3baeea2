"""Questions through TFDS: folders with the features of TFDS's own sets, and our own builder over the authors' files."""

import json
import os

import pytest

from rag_jax.text.datasets import load_collection
from rag_jax.text.tasks import task_questions
from rag_jax.types import Question

ROWS = {
    "natural_questions_open": {
        "train": [{"question": "who?", "answer": ["Ada", "Ä."]}, {"question": "why?", "answer": ["so"]}],
        "validation": [{"question": "where?", "answer": []}],
    },
    "web_questions": {"test": [{"url": "u", "question": "who?", "answers": ["Ada"]}]},
    "trivia_qa": {
        "validation": [
            {"question_id": "tc_1", "question": "who?", "answer": {"value": "Ada", "aliases": ["ADA", "Ada"]}},
            {"question_id": "tc_2", "question": "hidden?", "answer": {"value": "<unk>", "aliases": []}},
        ]
    },
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Name -> a folder as TFDS 4.9.10 prepares that set: the same name and the same features."""
    tfds = pytest.importorskip("tensorflow_datasets")
    text = tfds.features.Text()
    texts = tfds.features.Sequence(text)
    nothing = tfds.features.Sequence({"title": text})
    features = {
        "natural_questions_open": {"question": text, "answer": texts},
        "web_questions": {"url": text, "question": text, "answers": texts},
        "trivia_qa": {
            "question": text,
            "question_id": text,
            "entity_pages": nothing,
            "answer": tfds.features.FeaturesDict({"aliases": texts, "value": text}),
        },
    }
    place = tmp_path_factory.mktemp("tfds")

    class Builder(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features[self.name]))

        def _split_generators(self, dl_manager):
            return {split: enumerate(rows) for split, rows in ROWS[self.name].items()}

        def _generate_examples(self):
            raise NotImplementedError

    folders = {}
    for name, columns in features.items():
        if "entity_pages" in columns:
            for row in ROWS[name]["validation"]:
                row["entity_pages"] = []
        builder = type("Builder", (Builder,), {"name": name, "pkg_dir_path": place})(
            data_dir=os.fspath(place), file_format="array_record"
        )
        builder.download_and_prepare()
        folders[name] = builder.data_path
    return folders


def test_sets_that_tfds_has_are_read_from_what_it_prepared(prepared):
    found = task_questions("natural_questions", prepared["natural_questions_open"], "train")
    assert {(question.text, question.answers) for question in found} == {("who?", ("Ada", "Ä.")), ("why?", ("so",))}
    assert [question.id for question in found] == ["train-0", "train-1"]
    assert task_questions("web_questions", prepared["web_questions"], "test") == (Question("test-0", "who?", ("Ada",)),)
    trivia = task_questions("trivia_qa", prepared["trivia_qa"], "validation")
    assert set(trivia) == {Question("tc_1", "who?", ("Ada", "ADA")), Question("tc_2", "hidden?", ())}


def test_a_missing_split_is_told_those_that_there_are(prepared):
    with pytest.raises(ValueError, match=r"no split 'test'; there are train, validation .*config\.eval\.split"):
        task_questions("natural_questions", prepared["natural_questions_open"], "test")


def test_another_set_is_refused(prepared):
    with pytest.raises(ValueError, match="TFDS prepared 'web_questions' here; data set 'trivia_qa' is"):
        task_questions("trivia_qa", prepared["web_questions"], "test")
    with pytest.raises(ValueError, match="data set 'fever' is questions"):
        task_questions("fever", prepared["web_questions"], "test")


def test_a_collection_trains_on_one_split_and_evaluates_on_another(prepared, tmp_path):
    (tmp_path / "p.tsv").write_text("id\ttext\ttitle\n1\tAda.\tKeeper\n", "utf-8")
    folder = str(prepared["natural_questions_open"])
    collection = load_collection(
        "natural_questions",
        split="validation",
        passages_path=str(tmp_path / "p.tsv"),
        questions_path=folder,
        eval_questions_path=folder,
    )
    assert len(collection.train) == 2
    assert [question.text for question in collection.evaluation] == ["where?"]


def test_our_builder_gives_the_questions_of_an_authors_file(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    from rag_jax.text import question_builder

    rows = [
        {"id": 5, "claim": "Ä burns .", "evidence": "It does .", "label": "SUPPORTS"},
        {"id": 3, "claim": "It is out .", "evidence": "It burns .", "label": "REFUTES"},
    ]
    file = tmp_path / "dev.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    folder = question_builder.prepare("fever_symmetric", {"validation": file}, tmp_path / "tfds")
    assert task_questions("fever_symmetric", folder, "validation") == task_questions("fever_symmetric", file)
    assert question_builder.prepare("fever_symmetric", {"validation": file}, tmp_path / "tfds") == folder
    file.write_text(json.dumps(rows[0]) + "\n", "utf-8")
    again = question_builder.prepare("fever_symmetric", {"validation": file}, tmp_path / "tfds")
    assert again != folder
    words = task_questions("fever_symmetric", again, "validation", words=("yes", "no"))
    assert [(question.id, question.answers) for question in words] == [("5", ("yes",))]
    with pytest.raises(FileNotFoundError, match="no such file"):
        question_builder.prepare("fever_symmetric", {"validation": tmp_path / "none"}, tmp_path / "tfds")
