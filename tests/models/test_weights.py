"""Parameter files: what is written comes back, and what does not fit is refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.weights import load_params, save_params


@pytest.fixture
def tree(rng):
    kernel = rng.normal(size=(3, 4)).astype(np.float32)
    return {"layers": {"dense": {"kernel": kernel, "bias": np.float32([1e-30, -0.0, np.pi])}}, "table": kernel.T[:2]}


def flat(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_float32_comes_back_bit_by_bit(tree, tmp_path):
    save_params(tmp_path / "new" / "a.safetensors", jax.tree.map(jnp.asarray, tree))
    back = load_params(tmp_path / "new" / "a.safetensors", like=tree)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for name, leaf in flat(back).items():
        assert leaf.dtype == np.float32
        assert leaf.tobytes() == flat(tree)[name].tobytes(), name


def test_float16_rounds_and_halves_the_file(tree, tmp_path):
    big = {"kernel": np.linspace(-3, 3, 10_000, dtype=np.float32)}
    for dtype in ("float32", "float16"):
        save_params(tmp_path / dtype, big, dtype)
    back = load_params(tmp_path / "float16")["kernel"]
    assert back.dtype == np.float32
    assert back.tobytes() == big["kernel"].astype(np.float16).astype(np.float32).tobytes()
    assert not np.array_equal(back, big["kernel"])
    assert (tmp_path / "float16").stat().st_size < 0.51 * (tmp_path / "float32").stat().st_size


def test_bfloat16_parameters_are_written_without_loss(tmp_path):
    half = jnp.arange(7, dtype=jnp.bfloat16) / 3
    save_params(tmp_path / "a", {"half": half})
    np.testing.assert_array_equal(load_params(tmp_path / "a")["half"], half.astype(jnp.float32))


def test_shapes_alone_serve_as_the_pattern(tree, tmp_path):
    save_params(tmp_path / "a", tree)
    assert flat(load_params(tmp_path / "a", like=jax.eval_shape(lambda: tree))).keys() == flat(tree).keys()


def test_every_difference_is_listed_at_once(tree, tmp_path):
    save_params(tmp_path / "a", tree)
    like = {"layers": {"dense": {"kernel": np.zeros((4, 3)), "scale": np.zeros(5)}}, "table": tree["table"]}
    with pytest.raises(ValueError, match="does not fit this model") as error:
        load_params(tmp_path / "a", like=like)
    _, *faults = str(error.value).splitlines()
    assert [fault.strip() for fault in faults] == [
        "missing layers/dense/scale (5,)",
        "not wanted layers/dense/bias (3,)",
        "layers/dense/kernel is (3, 4), should be (4, 3)",
    ]


@pytest.mark.parametrize("kept", [0, 4, 40, -1])
def test_a_truncated_file_is_refused(tree, tmp_path, kept):
    path = tmp_path / "a.safetensors"
    save_params(path, tree)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"a\.safetensors: not a whole safetensors file"):
        load_params(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no weights"):
        load_params(tmp_path / "nowhere")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tree, tmp_path, monkeypatch):
    save_params(tmp_path / "a", tree)

    def fail(tensors, path, metadata):
        path.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr("rag_jax.models.weights.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save_params(tmp_path / "a", {"other": np.ones(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert flat(load_params(tmp_path / "a")).keys() == flat(tree).keys()
