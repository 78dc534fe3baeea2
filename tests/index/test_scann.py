import dataclasses
import json
import shutil

import numpy as np
import pytest

from rag_jax.index.exact import ExactSearcher
from rag_jax.index.scann import ScannSearcher, ScannSettings

pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")

TREE = ScannSettings(leaves=16, leaves_to_search=2, dims_per_block=2, reorder=40)
SOAR = dataclasses.replace(TREE, soar=1.5)


@pytest.fixture
def vectors(rng):
    return rng.standard_normal((2000, 8), np.float32)


@pytest.fixture
def queries(rng):
    return rng.standard_normal((6, 8), np.float32)


def test_settings_follow_the_rules_of_thumb():
    small, middle, large, wiki = map(ScannSettings.derive, (19_999, 20_000, 100_000, 21_015_324))
    assert (small.leaves, small.dims_per_block, small.reorder) == (0, 0, 0)
    assert (middle.leaves, middle.dims_per_block, middle.reorder) == (0, 2, 200)
    assert (large.leaves, large.dims_per_block, large.anisotropic_threshold) == (316, 2, 0.2)
    assert (wiki.leaves, wiki.leaves_to_search, wiki.training_sample) == (4584, 458, 183_360)
    assert (middle.soar, large.soar) == (0, 1.5)
    for count, settings in ((1, ScannSettings.derive(1)), (20_000, middle), (100_000, large), (21_015_324, wiki)):
        settings.check(count, 768)


def test_an_override_wins_and_a_misspelt_one_is_refused():
    assert ScannSettings.derive(100_000, leaves=7, leaves_to_search=7).leaves == 7
    with pytest.raises(TypeError, match="leafs"):
        ScannSettings.derive(100_000, leafs=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"leaves": 2001, "leaves_to_search": 1},
        {"leaves": -1},
        {"leaves_to_search": 0},
        {"leaves_to_search": 17},
        {"soar": -1.0},
        {"soar": 1.0, "leaves": 0, "leaves_to_search": 0},
        {"leaves": 0},
        {"leaves": 2.0},
        {"dims_per_block": 9},
        {"dims_per_block": -1},
        {"reorder": -1},
        {"reorder_dtype": "float16"},
        {"training_sample": 0},
        {"training_sample": 15},
        {"anisotropic_threshold": 1.0},
        {"anisotropic_threshold": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong):
    settings = ScannSettings(
        **(dataclasses.asdict(TREE) | {k: v for k, v in wrong.items() if not isinstance(v, float)})
    )
    for name, value in wrong.items():
        object.__setattr__(settings, name, value)  # past the annotations that these tests check
    with pytest.raises(ValueError, match=r"ScannSettings\." + r"|".join(wrong)):
        settings.check(2000, 8)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_below_one_are_refused(vectors, threads, tmp_path):
    with pytest.raises(ValueError, match="threads must be 1 or more"):
        ScannSearcher.build(vectors, threads=threads)
    ScannSearcher.build(vectors).save(tmp_path / "s")
    with pytest.raises(ValueError, match="threads must be 1 or more"):
        ScannSearcher.load(tmp_path / "s", 2000, threads=threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2, 6])
def test_threads_and_batches_change_nothing_in_a_search(vectors, queries, tmp_path, threads, batch):
    built = ScannSearcher.build(vectors, TREE, threads=1)
    built.save(tmp_path / "s")
    loaded = ScannSearcher.load(tmp_path / "s", 2000, threads=threads)
    np.testing.assert_array_equal(loaded.search(queries[:batch], 9), built.search(queries, 9)[:batch])


def test_codes_without_the_vectors_to_learn_them_are_refused(vectors):
    with pytest.raises(ValueError, match=r"dims_per_block = 2; for 15 vectors of 8 it lies in 0\.\.0"):
        ScannSearcher.build(vectors[:15], ScannSettings(dims_per_block=2))


def test_reordering_without_codes_is_refused(vectors):
    with pytest.raises(ValueError, match="reorder needs codes"):
        ScannSearcher.build(vectors, ScannSettings(reorder=10))


SMALLEST_CODES = ScannSettings(dims_per_block=2, reorder=5, training_sample=16)
SMALLEST_TREE = ScannSettings(leaves=16, leaves_to_search=1, dims_per_block=8, reorder=1, training_sample=16)


@pytest.mark.parametrize(
    ("count", "settings"),
    [(1, None), (2, None), (15, None), (16, SMALLEST_CODES), (16, SMALLEST_TREE), (1, ScannSettings(1, 1))],
)
def test_a_handful_of_vectors_is_an_index(vectors, queries, count, settings):
    found = ScannSearcher.build(vectors[:count], settings).search(queries, 20)
    np.testing.assert_array_equal(found, ExactSearcher(vectors[:count]).search(queries, 20))


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e6])
def test_equal_vectors_are_an_index(queries, constant):
    found = ScannSearcher.build(np.full((500, 8), constant, np.float32), TREE).search(queries, 5)
    assert all(len(set(row)) == 5 for row in found.tolist())


def test_a_tree_that_finds_too_few_says_so_and_invents_none(vectors, queries, monkeypatch):
    searcher = ScannSearcher.build(vectors, TREE)
    kwargs_seen = searcher._scann.search_batched_parallel

    def two_leaves_only(queries, **kwargs):
        return kwargs_seen(queries, **(kwargs | {"leaves_to_search": 2}))

    searcher._threads = 2
    monkeypatch.setattr(searcher._scann, "search_batched_parallel", two_leaves_only)
    found = searcher.search(queries, 1000)
    assert (found == -1).any(axis=1).all()
    for row in found:
        real = row[row >= 0]
        assert len(real) == len(set(real))
        assert (row[len(real) :] == -1).all()


def test_a_large_k_opens_as_many_leaves_as_it_needs(vectors, queries):
    assert (ScannSearcher.build(vectors, TREE).search(queries, 1500) >= 0).all()


@pytest.mark.parametrize("settings", [ScannSettings(), dataclasses.replace(TREE, leaves=0, leaves_to_search=0), SOAR])
def test_a_moved_searcher_finds_the_same(vectors, queries, tmp_path, settings):
    built = ScannSearcher.build(vectors, settings)
    built.save(tmp_path / "here")
    shutil.move(tmp_path / "here", tmp_path / "there")
    loaded = ScannSearcher.load(tmp_path / "there", 2000)
    assert loaded.settings == settings
    np.testing.assert_array_equal(loaded.search(queries, 9), built.search(queries, 9))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_smaller_reordering_vectors_find_nearly_the_same(vectors, queries, tmp_path, dtype):
    settings = dataclasses.replace(TREE, leaves_to_search=16, reorder=2000, reorder_dtype=dtype)
    ScannSearcher.build(vectors, settings).save(tmp_path / "s")
    found = ScannSearcher.load(tmp_path / "s", 2000).search(queries, 20)
    exact = ExactSearcher(vectors).search(queries, 20)
    assert np.mean([len(set(a) & set(b)) / 20 for a, b in zip(found.tolist(), exact.tolist(), strict=True)]) > 0.9


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGE = {
    "fewer vectors": lambda d: np.save(d / "dataset.npy", np.load(d / "dataset.npy")[:100]),
    "narrower vectors": lambda d: np.save(d / "dataset.npy", np.load(d / "dataset.npy")[:, :7]),
    "fewer codes": lambda d: np.save(d / "hashed_dataset.npy", np.load(d / "hashed_dataset.npy")[:100]),
    "fewer tokens": lambda d: np.save(d / "datapoint_to_token.npy", np.load(d / "datapoint_to_token.npy")[:100]),
    "fewer second codes": lambda d: np.save(
        d / "hashed_dataset_soar.npy", np.load(d / "hashed_dataset_soar.npy")[:100]
    ),
    "no codebook": lambda d: (d / "ah_codebook.pb").unlink(),
    "no config": lambda d: (d / "scann_config.pb").unlink(),
    "no assets": lambda d: (d / "scann_assets.pbtxt").unlink(),
    "assets elsewhere": lambda d: (d / "scann_assets.pbtxt").write_text(
        (d / "scann_assets.pbtxt").read_text().replace('"dataset.npy"', '"../dataset.npy"')
    ),
    "a pickle": lambda d: (d / "scann_docids.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR."),
    "an empty array": lambda d: (d / "dataset.npy").write_bytes(b""),
    "another count": lambda d: edit_json(d / "searcher.json", count=1999),
    "unknown settings": lambda d: edit_json(d / "searcher.json", settings={"leafs": 3}),
    "broken json": lambda d: (d / "searcher.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_refused_before_scann_reads_them(vectors, tmp_path, damage, monkeypatch):
    ScannSearcher.build(vectors, SOAR).save(tmp_path / "s")
    DAMAGE[damage](tmp_path / "s")
    with pytest.raises(ValueError, match=r"not a ScaNN searcher for this index .*build the index again"):
        ScannSearcher.load(tmp_path / "s", 2000)


def test_a_searcher_of_another_set_is_refused(vectors, tmp_path):
    ScannSearcher.build(vectors[:1000], TREE).save(tmp_path / "s")
    with pytest.raises(ValueError, match="built over 1000 vectors, expected 2000"):
        ScannSearcher.load(tmp_path / "s", 2000)
    with pytest.raises(FileNotFoundError, match="no ScaNN searcher there"):
        ScannSearcher.load(tmp_path / "none", 2000)


def test_a_second_leaf_finds_more_in_as_many_leaves_and_no_row_twice(vectors, rng):
    queries = rng.standard_normal((200, 8), np.float32)
    exact = ExactSearcher(vectors).search(queries, 10)
    found = [ScannSearcher.build(vectors, settings).search(queries, 10) for settings in (TREE, SOAR)]
    once, twice = ([len(set(a) & set(b)) for a, b in zip(f.tolist(), exact.tolist(), strict=True)] for f in found)
    assert np.mean(twice) > np.mean(once) + 0.5
    assert all(len(set(row)) == 10 for row in found[1].tolist())


def test_derived_codes_recall_nearly_everything_of_clustered_vectors(rng):
    centres = rng.standard_normal((200, 32), np.float32)
    vectors = centres[rng.integers(200, size=20_000)] + 0.3 * rng.standard_normal((20_000, 32), np.float32)
    queries = vectors[:40] + 0.1 * rng.standard_normal((40, 32), np.float32)
    searcher = ScannSearcher.build(vectors)
    assert searcher.settings.dims_per_block == 2
    exact = ExactSearcher(vectors).search(queries, 10)
    found = searcher.search(queries, 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)]) > 0.95
