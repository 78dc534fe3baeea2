"""Vectors that are kept beside their encoder: taken for its own passages alone."""

import numpy as np
import pytest

from rag_jax.index import load_vectors, save_vectors


@pytest.fixture
def kept(rng, tmp_path):
    vectors = rng.standard_normal((5, 3)).astype(np.float32)
    save_vectors(tmp_path / "kept.safetensors", vectors, passages="p", encoder="e")
    return tmp_path / "kept.safetensors", vectors


def test_vectors_come_back_as_float16_has_them(kept):
    path, vectors = kept
    found = load_vectors(path, passages="p", encoder="e")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors.astype(np.float16))


@pytest.mark.parametrize("other", [{"passages": "q", "encoder": "e"}, {"passages": "p", "encoder": "f"}])
def test_those_of_other_passages_or_another_encoder_are_none(kept, other):
    assert load_vectors(kept[0], **other) is None


def test_a_file_that_is_not_there_is_none_and_a_broken_one_an_error(kept):
    path, _ = kept
    assert load_vectors(path.with_name("nothing"), passages="p", encoder="e") is None
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_vectors(path, passages="p", encoder="e")
