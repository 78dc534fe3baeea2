"""An index as it is asked for: opened, made, made again, or refused."""

import numpy as np
import pytest

from rag_jax.index import IndexMismatch, build_index, open_index
from rag_jax.index import asked as asked_for
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

PASSAGES = PassageTable.from_passages(Passage(f"p{n}", "", f"text {n}") for n in range(9))
OTHERS = PassageTable.from_passages(list(PASSAGES)[:8])
ENCODER = "e" * 64


def vectors_of(some):
    return np.array([[int(p.id[1:]), 1.0] for p in some], np.float32)


def ask(directory, passages=PASSAGES, limit=128, **options):
    given = {"encoder_fingerprint": ENCODER, "backend": "device", "dtype": "", "vectors": None, "derived": True}
    made_with = {"max_passage_tokens": limit} if limit else {}
    return asked_for.open_or_build(directory, passages, vectors_of, made_with=made_with, **given | options)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"passages": OTHERS}, f"passages: {PASSAGES.fingerprint[:12]} there, asked for {OTHERS.fingerprint[:12]}"),
        ({"backend": "exact"}, "backend: device there, asked for exact"),
        ({"dtype": "int8"}, "dtype: float32 there, asked for int8"),
        ({"encoder_fingerprint": "f" * 64}, f"encoder: {'e' * 12} there, asked for {'f' * 12}"),
        ({"limit": 64}, "max_passage_tokens: 128 there, asked for 64"),
    ],
)
def test_another_index_is_made_again_if_it_is_derived_and_else_stays(tmp_path, capsys, change, told):
    ask(tmp_path / "i")
    before = (tmp_path / "i" / "manifest.json").read_bytes()
    with pytest.raises(IndexMismatch) as refused:
        ask(tmp_path / "i", derived=False, **change)
    assert told in str(refused.value)
    assert (tmp_path / "i" / "manifest.json").read_bytes() == before
    assert not capsys.readouterr().err
    ask(tmp_path / "i", **change)
    assert told in capsys.readouterr().err
    made = (tmp_path / "i" / "manifest.json").read_bytes()
    assert made != before
    ask(tmp_path / "i", derived=False, **change)
    assert (tmp_path / "i" / "manifest.json").read_bytes() == made


def test_a_damaged_index_is_made_again_only_if_it_is_derived(tmp_path):
    ask(tmp_path / "i")
    (tmp_path / "i" / "vectors.npy").write_bytes(b"half")
    with pytest.raises(IndexMismatch, match=r"vectors\.npy has 4 bytes"):
        ask(tmp_path / "i", derived=False)
    assert (tmp_path / "i" / "vectors.npy").read_bytes() == b"half"
    np.testing.assert_array_equal(ask(tmp_path / "i").vectors, vectors_of(PASSAGES))


def test_an_index_that_does_not_say_how_long_its_passages_were_is_taken(tmp_path):
    ask(tmp_path / "i", limit=None)
    assert ask(tmp_path / "i", derived=False).manifest.made_with == {}


def test_of_two_that_make_one_index_the_second_opens_what_the_first_made(tmp_path, monkeypatch):
    calls = []

    def comes_second(directory, *given, **options):
        calls.append(options["overwrite"])
        passages = OTHERS if len(calls) == 1 and tmp_path.joinpath("other").exists() else PASSAGES
        made = {"encoder_fingerprint": ENCODER, "backend": "device", "made_with": options["made_with"]}
        build_index(directory, passages, vectors_of(passages), overwrite=options["overwrite"], **made)
        if len(calls) == 1:
            raise FileExistsError("made meanwhile")
        return open_index(directory)

    monkeypatch.setattr(asked_for, "build_resumable", comes_second)
    assert len(ask(tmp_path / "i").passages) == 9
    assert calls == [False]
    calls.clear()
    (tmp_path / "other").touch()
    with pytest.raises(IndexMismatch, match="passages: "):
        ask(tmp_path / "j", derived=False)
    assert calls == [False]


def test_a_place_where_nothing_can_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        ask(tmp_path / "file" / "i")
    with pytest.raises(FileNotFoundError, match="never overwritten"):
        ask(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
