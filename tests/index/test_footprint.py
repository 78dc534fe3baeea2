import pytest

from rag_jax.index.footprint import estimate

WIKIPEDIA, BERT = 21_015_324, 768
GB = 10**9


@pytest.mark.parametrize(
    ("backend", "dtype", "codes", "vectors"),
    [
        ("exact", "float32", 0, 64.6),
        ("device", "float32", 0, 64.6),
        ("device", "bfloat16", 0, 32.3),
        ("device", "int8", 0, 16.2),
        ("scann", "float32", 4.0, 64.6),
        ("scann", "bfloat16", 4.0, 32.3),
        ("scann", "int8", 4.0, 16.1),
    ],
)
def test_wikipedia_takes_what_is_known(backend, dtype, codes, vectors):
    found = estimate(WIKIPEDIA, BERT, backend, dtype)
    assert round(found.codes / GB, 1) == codes
    assert round(found.vectors / GB, 1) == vectors
    assert found.memory == found.codes + found.vectors
    assert round(found.passages / GB) == 13


def test_codes_take_half_a_byte_for_two_dimensions():
    assert estimate(WIKIPEDIA, BERT).codes == WIKIPEDIA * 192


def test_stored_vectors_are_float32_and_smaller_copies_come_on_top():
    assert estimate(WIKIPEDIA, BERT, "device", "int8").vectors_on_disk == WIKIPEDIA * BERT * 4
    assert estimate(WIKIPEDIA, BERT, "scann", "bfloat16").vectors_on_disk == WIKIPEDIA * BERT * 6


def test_few_vectors_have_no_codes():
    assert estimate(10_000, 128).memory == 10_000 * 128 * 4


def test_bm25_has_words_instead_of_vectors():
    found = estimate(WIKIPEDIA, 1, "bm25")
    assert found.vectors == found.vectors_on_disk == 0
    assert found.codes > 0


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
