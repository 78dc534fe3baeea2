import numpy as np
import pytest

from rag_jax.text.table import PassageTable
from rag_jax.text.token_rows import passage_rows, tokenizer_fingerprint
from rag_jax.text.tokens import Tokenizers, train_tokenizer
from rag_jax.types import Passage

PASSAGES = [Passage(f"p{n}", f"Title {n}", "the Iliad is an epic poem " * (n % 7)) for n in range(25)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([passage.text for passage in PASSAGES], 300)


@pytest.fixture(scope="module")
def tokenizers(tokenizer):
    return Tokenizers.shared(tokenizer, max_passage=16)


@pytest.fixture(scope="module")
def table():
    return PassageTable.from_passages(PASSAGES)


@pytest.mark.parametrize(("role", "encode"), [("passage", "passages"), ("source", "source_passages")])
def test_kept_rows_are_what_the_tokenizer_gives(tmp_path, monkeypatch, table, tokenizers, role, encode):
    monkeypatch.setattr("rag_jax.text.token_rows.BATCH", 4)  # batches of different widths, the last one short
    rows = passage_rows(tmp_path / "tokens", table, tokenizers, role)
    expected = getattr(tokenizers, encode)(PASSAGES)
    assert isinstance(rows, np.memmap)
    assert rows.dtype == np.uint16
    assert rows.shape == (25, 16)
    np.testing.assert_array_equal(rows[:, : expected.shape[1]], expected)
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


def test_rows_are_made_once_for_passages_tokenizer_limit_and_role(tmp_path, monkeypatch, table, tokenizers, tokenizer):
    passage_rows(tmp_path, table, tokenizers, "passage")
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizers, "passages", lambda self, passages: pytest.fail("tokenized again"))
        passage_rows(tmp_path, PassageTable.from_passages(PASSAGES), tokenizers, "passage")
    others = [
        (PassageTable.from_passages(PASSAGES[::-1]), tokenizers, "passage"),
        (table, Tokenizers.shared(tokenizer, max_passage=15), "passage"),
        (table, Tokenizers.shared(train_tokenizer(["other"], 270), max_passage=16), "passage"),
        (table, tokenizers, "source"),
    ]
    for other in others:
        passage_rows(tmp_path, *other)
    assert len(list(tmp_path.iterdir())) == 1 + len(others)


def test_a_vocabulary_beyond_uint16_is_kept_in_int32(tmp_path, monkeypatch, table, tokenizers, tokenizer):
    monkeypatch.setattr(type(tokenizer), "__len__", lambda self: 250_000)
    assert passage_rows(tmp_path, table, tokenizers, "passage").dtype == np.int32


def test_a_use_of_the_tokenizer_leaves_its_fingerprint(tokenizer):
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a", "b c"], padding=True, truncation=True, max_length=5)
    assert tokenizer_fingerprint(tokenizer) == before
    assert tokenizer_fingerprint(train_tokenizer(["other"], 270)) != before


def test_a_failed_tokenization_leaves_nothing(tmp_path, monkeypatch, table, tokenizers):
    monkeypatch.setattr("rag_jax.text.token_rows.BATCH", 10)
    encode, calls = Tokenizers.passages, []

    def passages(self, batch):
        calls.append(batch)
        if len(calls) == 3:
            raise OSError("disk full")
        return encode(self, batch)

    monkeypatch.setattr(Tokenizers, "passages", passages)
    with pytest.raises(OSError, match="disk full"):
        passage_rows(tmp_path, table, tokenizers, "passage")
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_refused(tmp_path, table, tokenizers):
    passage_rows(tmp_path, table, tokenizers, "passage")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="remove it"):
        passage_rows(tmp_path, table, tokenizers, "passage")
    np.save(path, np.zeros((2, 2), np.uint16))
    with pytest.raises(ValueError, match=r"expected uint16 \(25, 16\); remove it"):
        passage_rows(tmp_path, table, tokenizers, "passage")


def test_an_unknown_role_is_refused(tmp_path, table, tokenizers):
    with pytest.raises(Exception, match="role"):
        passage_rows(tmp_path, table, tokenizers, "answer")
