import numpy as np
import pytest

from rag_jax.index.footprint import estimate, estimate_all
from rag_jax.index.scann import ScannSearcher, ScannSettings

WIKIPEDIA, BERT = 21_015_324, 768
GB = 10**9


@pytest.mark.parametrize(
    ("backend", "dtype", "codes", "vectors"),
    [
        ("exact", "float32", 0, 64.6),
        ("device", "float32", 0, 64.6),
        ("device", "bfloat16", 0, 32.3),
        ("device", "int8", 0, 16.2),
        ("scann", "float32", 8.1, 64.6),
        ("scann", "bfloat16", 8.1, 32.3),
        ("scann", "int8", 8.1, 16.1),
    ],
)
def test_wikipedia_takes_what_is_known(backend, dtype, codes, vectors):
    found = estimate(WIKIPEDIA, BERT, backend, dtype)
    assert round(found.codes / GB, 1) == codes
    assert round(found.vectors / GB, 1) == vectors
    assert found.memory == found.codes + found.vectors
    assert round(found.passages / GB) == 13


def test_codes_take_half_a_byte_for_two_dimensions_in_each_of_two_leaves():
    found = estimate(WIKIPEDIA, BERT)
    assert found.codes == WIKIPEDIA * 192 * 2
    assert found.codes_on_disk == WIKIPEDIA * (384 + 4) * 2  # whole bytes, and the number of the leaf


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_estimate_is_what_scann_writes(tmp_path, monkeypatch, dtype):
    pytest.importorskip("scann", reason="ScaNN has wheels for Linux only")
    count, dim = 3000, 7
    settings = ScannSettings(20, 5, 1.5, 2, reorder=100, reorder_dtype=dtype)
    monkeypatch.setattr(ScannSettings, "derive", classmethod(lambda cls, count, **_: settings))
    vectors = np.random.default_rng(0).standard_normal((count, dim), np.float32)
    ScannSearcher.build(vectors, settings).save(tmp_path / "s")
    expected = estimate(count, dim, "scann", dtype)
    written = {path.name: path.stat().st_size for path in (tmp_path / "s").glob("*.npy")}
    original = written.pop("dataset.npy", 0)  # a link to the stored vectors
    assert original in (0, expected.stored + 128)
    # A header of 128 bytes for each array; what int8 needs for each dimension does not grow with the vectors.
    assert sum(written.values()) == pytest.approx(expected.codes_on_disk + expected.copies, abs=128 * 6)


def test_stored_vectors_are_float32_and_smaller_copies_come_on_top():
    device, scann = estimate(WIKIPEDIA, BERT, "device", "int8"), estimate(WIKIPEDIA, BERT, "scann", "bfloat16")
    assert device.stored == scann.stored == WIKIPEDIA * BERT * 4
    assert (device.copies, scann.copies) == (0, WIKIPEDIA * BERT * 2)


def test_a_build_keeps_vectors_and_passages_twice_and_what_is_made_of_them_once():
    found = estimate(WIKIPEDIA, BERT, "scann", "bfloat16")
    assert found.disk_while_building - found.disk == found.stored + found.passages


def test_few_vectors_have_no_codes():
    assert estimate(10_000, 128).memory == 10_000 * 128 * 4


def test_bm25_has_words_instead_of_vectors():
    found = estimate(WIKIPEDIA, 1, "bm25")
    assert found.vectors == found.stored == found.copies == 0
    assert found.codes > 0


def test_all_estimates_are_those_of_every_backend_with_every_dtype_it_takes():
    found = dict(estimate_all(1000, 8))
    assert sorted(found) == [
        ("bm25", "-"),
        *(("device", dtype) for dtype in ("bfloat16", "float32", "int8")),
        ("exact", "float32"),
        *(("scann", dtype) for dtype in ("bfloat16", "float32", "int8")),
    ]
    assert found["device", "int8"] == estimate(1000, 8, "device", "int8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 8, "faiss"), "no index backend"),
        ((10, 8, "device", "float16"), "no dtype 'float16'"),
        ((10, 8, "exact", "int8"), 'choose backend "device"'),
        ((0, 8), "at least one vector"),
    ],
)
def test_what_cannot_be_built_has_no_estimate(arguments, message):
    with pytest.raises(ValueError, match=message):
        estimate(*arguments)
