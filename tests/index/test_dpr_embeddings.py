import itertools
import os
import pickle

import numpy as np
import pytest

from rag_jax.index.dpr_embeddings import place_embeddings, read_dpr_embeddings
from rag_jax.index.imported import build_with_embeddings
from rag_jax.index.store import open_index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

PASSAGES = [Passage(str(n), f"Title {n}", f"text {n}") for n in range(1, 12)]
ENCODER = "e" * 64


def vectors_of(some):
    return np.stack([np.random.default_rng(int(p.id)).standard_normal(6).astype(np.float32) for p in some])


def written(path, value, protocol=3):
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


def pairs_of(passages, form="{}"):
    return [(form.format(p.id), vector) for p, vector in zip(passages, vectors_of(passages), strict=True)]


def build(directory, files, passages=PASSAGES, embed=vectors_of, **options):
    pairs = itertools.chain.from_iterable(map(read_dpr_embeddings, files))
    chosen = {"encoder_fingerprint": ENCODER, "backend": "exact"} | options
    return build_with_embeddings(directory, iter(passages), pairs, embed, **chosen)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_ids_and_vectors_are_read_as_they_were_written(tmp_path, protocol, dtype):
    wanted = [("wiki:1", np.arange(4).astype(dtype)), (2, -np.ones(4, dtype)), ("3", np.zeros((1, 4), dtype))]
    found = list(read_dpr_embeddings(written(tmp_path / "f", wanted, protocol)))
    assert [id for id, _ in found] == ["wiki:1", "2", "3"]
    for (_, ours), (_, theirs) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs.reshape(-1))


class Runs:
    """What a hostile file holds: unpickling it makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("wrap", [lambda bad: bad, lambda bad: [("1", bad)], lambda bad: [(bad, np.ones(4))]])
def test_a_hostile_file_is_refused_and_nothing_in_it_runs(tmp_path, protocol, wrap):
    made = tmp_path / "made"
    path = written(tmp_path / "f", wrap(Runs(made)), protocol)
    with pytest.raises(ValueError, match=r"not DPR's embeddings: .*(mkdir|instruction)"):
        list(read_dpr_embeddings(path))
    assert not made.exists()
    pickle.loads(path.read_bytes())  # the file does what it says, so the test can fail
    assert made.exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"1": np.ones(4)}, "holds a dict"),
        ([("1", [1.0, 2.0])], "entry 0 is no pair"),
        ([("1", np.ones(4)), "2"], "entry 1 is no pair"),
        ([("1", np.ones(4, np.int32))], "array of type 'i4'"),
        ([("1", np.array([None]))], "array of type 'O8'"),
        ([("1", np.ones((2, 4), np.float32))], r"shape \(2, 4\)"),
        ([("1", np.float32(1))], "scalar"),
    ],
)
def test_what_is_no_list_of_ids_and_vectors_is_refused(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        list(read_dpr_embeddings(written(tmp_path / "f", value)))


def test_a_file_that_ends_early_is_refused(tmp_path):
    path = written(tmp_path / "f", pairs_of(PASSAGES))
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"damaged|no end"):
            list(read_dpr_embeddings(path))


@pytest.mark.parametrize("form", ["{}", "wiki:{}"])
def test_an_index_holds_each_vector_at_its_passage_whatever_the_order(tmp_path, form):
    pairs = pairs_of(PASSAGES, form)[::-1]
    files = [written(tmp_path / "a", pairs[:4]), written(tmp_path / "b", pairs[4:])]
    progress = []
    index = build(tmp_path / "i", files, progress=lambda *at: progress.append(at), made_with={"weights": "dpr"})
    np.testing.assert_array_equal(index.vectors, vectors_of(PASSAGES))
    assert list(index.passages) == PASSAGES
    assert (progress[0], progress[-1]) == ((0, 11), (11, 11))
    assert open_index(tmp_path / "i", encoder_fingerprint=ENCODER).manifest.made_with == {"weights": "dpr"}
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["i"]


def test_ids_may_have_the_prefix_in_the_passages_instead(tmp_path):
    table = PassageTable.from_passages(Passage(f"wiki:{p.id}", p.title, p.text) for p in PASSAGES)
    placed = place_embeddings(table, pairs_of(PASSAGES), tmp_path / "v.npy")
    np.testing.assert_array_equal(placed, vectors_of(PASSAGES))


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        (pairs_of([*PASSAGES, Passage("77", "", "")]), {}, "the id '77', no passage does"),
        (pairs_of([*PASSAGES, PASSAGES[2]]), {}, "the id '3' twice"),
        (pairs_of(PASSAGES[:3] + PASSAGES[5:]), {}, "2 of 11 passages have no embedding, first '4'"),
        ([], {}, "11 of 11 passages have no embedding"),
        ([*pairs_of(PASSAGES[1:]), ("1", np.ones(5, np.float32))], {}, "'1' has 5 dimensions, the first one 6"),
        ([*pairs_of(PASSAGES[1:]), ("1", np.full(6, np.nan, np.float32))], {}, "holds nan"),
        (pairs_of(PASSAGES), {"embed": lambda some: -vectors_of(some)}, "cosine -1.000; give the weights"),
        (pairs_of(PASSAGES), {"embed": lambda some: np.ones((len(some), 3))}, "6 dimensions, the encoder gives 3"),
        (pairs_of(PASSAGES), {"backend": "bm25"}, "takes no embeddings"),
    ],
)
def test_embeddings_of_other_passages_or_another_encoder_are_refused(tmp_path, pairs, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "i", [written(tmp_path / "f", pairs)], **options)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_what_is_in_the_way_is_found_before_the_work(tmp_path):
    files = [written(tmp_path / "f", pairs_of(PASSAGES))]
    build(tmp_path / "i", files)
    with pytest.raises(FileExistsError, match="exists already"):
        build(tmp_path / "i", [tmp_path / "nothing"])
    assert build(tmp_path / "i", files, overwrite=True, backend="device").manifest.backend == "device"
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="is no index"):
        build(tmp_path / "mine", [tmp_path / "nothing"], overwrite=True)
