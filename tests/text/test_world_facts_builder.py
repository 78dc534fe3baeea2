import pytest

from rag_jax.text import world_facts as world


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
