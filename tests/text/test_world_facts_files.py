import csv
import json

import pytest

from rag_jax.text import world_facts as world
from rag_jax.text.world_facts import export


def test_the_passages_table_reads_back_as_dpr_reads_it(tmp_path):
    path = tmp_path / "psgs_w100.tsv"
    count = export.export_passages_tsv(path, "2016")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert rows[0] == ["id", "text", "title"]
    expected = [[e.passage.id, e.passage.text, e.passage.title] for e in world.world_passages("2016")]
    assert rows[1:] == expected
    assert count == len(expected)


def test_passages_and_questions_read_back_from_json_lines(tmp_path):
    export.export_jsonl(tmp_path / "p.jsonl", "2020")
    export.export_jsonl(tmp_path / "q.jsonl", "2020", "questions")
    passages = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [p["text"] for p in passages] == [e.passage.text for e in world.world_passages("2020")]
    by_id = {e.question.id: e.question for e in world.world_questions("2020")}
    assert {q["id"]: (q["text"], tuple(q["answers"])) for q in questions} == {
        id: (q.text, q.answers) for id, q in by_id.items()
    }
    assert all(q["split"] == world.split_of(q["country"]) for q in questions)


def test_a_failed_export_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "p.jsonl"
    path.write_text("what was there")
    written = []

    def dumps(record, **kwargs):
        if len(written) == 5:
            raise OSError("disk full")
        written.append(record)
        return "{}"

    monkeypatch.setattr(export.json, "dumps", dumps)
    with pytest.raises(OSError, match="disk full"):
        export.export_jsonl(path, "2020")
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_kind_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="'passages' or 'questions'"):
        export.export_jsonl(tmp_path / "x.jsonl", "2020", "answers")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def builder():
    pytest.importorskip("tensorflow_datasets")
    from rag_jax.text.world_facts import builder

    return builder


def test_the_tfds_builder_gives_passages_back_in_order(builder, tmp_path):
    source = builder.load("passages_2020", tmp_path)["train"]
    expected = world.world_passages("2020")
    assert len(source) == len(expected)
    for i in (0, 1, 17, len(expected) - 1):
        row, entry = source[i], expected[i]
        assert row["id"].decode() == entry.passage.id
        assert row["text"].decode() == entry.passage.text
        assert [relation.decode() for relation in row["relations"]] == list(entry.relations)


def test_the_tfds_builder_gives_questions_back_by_split(builder, tmp_path):
    sources = builder.load("questions_2016", tmp_path)
    assert set(sources) == set(world.SPLITS)
    for split, source in sources.items():
        expected = world.world_questions("2016", split)
        assert len(source) == len(expected)
        for i in (0, len(expected) // 2, len(expected) - 1):
            assert source[i]["text"].decode() == expected[i].question.text
            assert [answer.decode() for answer in source[i]["answers"]] == list(expected[i].question.answers)


def test_a_prepared_data_set_is_not_prepared_again(builder, tmp_path, monkeypatch):
    builder.load("passages_2016", tmp_path)
    monkeypatch.setattr(builder, "world_passages", lambda edition: pytest.fail("generated again"))
    assert len(builder.load("passages_2016", tmp_path)["train"]) == len(world.world_passages("2016"))


def test_an_unknown_config_is_refused_by_name(builder, tmp_path):
    with pytest.raises(ValueError, match=r"no config 'passages_2024'.*passages_2016"):
        builder.load("passages_2024", tmp_path)
