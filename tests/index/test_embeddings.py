import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import freeze

from rag_jax.index.embeddings import embed, fingerprint

PAD = 1
PARAMS = {"b": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}, "a": np.float32(2), "c": [np.ones(2, np.int8)]}


def changed(path, value):
    return {"b": PARAMS["b"], "a": PARAMS["a"], "c": PARAMS["c"]} | {path: value}


def test_containers_order_and_devices_leave_the_fingerprint():
    expected = fingerprint(PARAMS)
    assert len(expected) == 64
    assert fingerprint(dict(reversed(PARAMS.items()))) == expected
    assert fingerprint(freeze(PARAMS)) == expected
    assert fingerprint(jax.tree.map(jnp.asarray, PARAMS)) == expected
    assert fingerprint(PARAMS | {"b": {"kernel": np.asfortranarray(PARAMS["b"]["kernel"])}}) == expected
    assert fingerprint(PARAMS | {"b": {"kernel": PARAMS["b"]["kernel"].astype(">f4")}}) == expected


@pytest.mark.parametrize(
    "other",
    [
        changed("a", np.nextafter(np.float32(2), np.float32(3))),
        changed("a", np.float64(2)),
        changed("a", np.full((1,), 2, np.float32)),
        changed("b", {"kernel": PARAMS["b"]["kernel"].reshape(3, 2)}),
        changed("b", {"kernels": PARAMS["b"]["kernel"]}),
        changed("c", []),
    ],
)
def test_any_change_of_a_value_type_shape_or_name_changes_the_fingerprint(other):
    assert fingerprint(other) != fingerprint(PARAMS)


def test_bfloat16_parameters_have_a_fingerprint_of_their_own():
    half = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), PARAMS)
    assert fingerprint(half) == fingerprint(jax.tree.map(np.asarray, half))
    assert fingerprint(half) != fingerprint(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float16), PARAMS))


@pytest.fixture
def tokens(rng):
    lengths = rng.integers(1, 101, size=53)
    return np.where(np.arange(100) < lengths[:, None], rng.integers(2, 1000, (53, 100)), PAD).astype(np.int32)


def expected(tokens):
    used = tokens != PAD
    return np.stack([used.sum(1), np.where(used, tokens, 0).sum(1), tokens[:, 0]], axis=1).astype(np.float32)


def encoder(shapes, dtype=jnp.float32):
    @jax.jit
    def encode(tokens):
        shapes.append(tokens.shape)  # once for each program that is compiled
        used = tokens != PAD
        return jnp.stack([used.sum(1), jnp.where(used, tokens, 0).sum(1), tokens[:, 0]], axis=1).astype(dtype)

    return encode


@pytest.mark.parametrize("batch_size", [1, 8, 53, 60])
def test_vectors_come_in_the_order_of_the_rows(tokens, batch_size):
    shapes = []
    found = embed(encoder(shapes), tokens, pad_id=PAD, batch_size=batch_size)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected(tokens))


def test_each_width_is_compiled_once_and_no_wider_than_its_longest_row(tokens):
    shapes = []
    embed(encoder(shapes), tokens, pad_id=PAD, batch_size=4)
    assert len(shapes) == len(set(shapes))
    longest = np.sort((tokens != PAD).sum(1))[::-1][::4]
    assert set(shapes) == {(4, min(-(-length // 16) * 16, 100)) for length in longest.tolist()}
    shapes.clear()
    embed(encoder(shapes), tokens[(tokens != PAD).sum(1) <= 16], pad_id=PAD, batch_size=4)
    assert shapes == [(4, 16)]


def test_the_longest_rows_go_first(tokens):
    widths = []

    def encode(tokens):
        widths.append(tokens.shape[1])
        return np.zeros((len(tokens), 2), np.float32)

    embed(encode, tokens, pad_id=PAD, batch_size=4)
    assert widths == sorted(widths, reverse=True)


def test_a_padding_id_inside_a_row_does_not_cut_it():
    tokens = np.full((3, 64), PAD, np.int32)
    tokens[1, 40] = 7
    np.testing.assert_array_equal(embed(encoder([]), tokens, pad_id=PAD, batch_size=2), expected(tokens))


def test_progress_reaches_the_end_in_steps(tokens):
    seen = []
    embed(encoder([]), tokens, pad_id=PAD, batch_size=20, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(20, 53), (40, 53), (53, 53)]


def test_half_precision_encoders_give_float32(tokens):
    assert embed(encoder([], jnp.bfloat16), tokens, pad_id=PAD, batch_size=20).dtype == np.float32


def test_vectors_can_go_straight_to_a_file(tokens, tmp_path):
    out = np.lib.format.open_memmap(tmp_path / "v.npy", mode="w+", dtype=np.float32, shape=(53, 3))
    assert embed(encoder([]), tokens, pad_id=PAD, batch_size=20, out=out) is out
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected(tokens))
    with pytest.raises(ValueError, match="out has the shape"):
        embed(encoder([]), tokens, pad_id=PAD, batch_size=20, out=np.zeros((53, 4), np.float32))


def test_a_diverged_encoder_is_refused_with_the_row():
    def encode(tokens):
        return np.where(tokens[:, :1] == 5, np.nan, np.ones((len(tokens), 2), np.float32))

    tokens = np.array([[3], [5], [4]], np.int32)
    with pytest.raises(ValueError, match=r"token row 1;.*diverged"):
        embed(encode, tokens, pad_id=PAD, batch_size=2)


@pytest.mark.parametrize(("rows", "batch_size"), [(0, 4), (3, 0)])
def test_nothing_to_do_is_refused(tokens, rows, batch_size):
    with pytest.raises(ValueError, match=r"no token rows|batch_size must be"):
        embed(encoder([]), tokens[:rows], pad_id=PAD, batch_size=batch_size)


def test_an_encoder_of_another_shape_is_refused(tokens):
    with pytest.raises(ValueError, match=r"must return \[B, D\]"):
        embed(lambda tokens: np.zeros((2, 3, 4), np.float32), tokens, pad_id=PAD, batch_size=2)
