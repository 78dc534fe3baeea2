"""Torch's files are read without running them, and a file made to do harm does none."""

import collections
import contextlib
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.models.hf_stored import CheckpointError
from rag_jax.models.hf_torch_file import read_torch, write_torch
from rag_jax.models.hf_torch_program import interpret, program


class Harm:
    """What it is made of, a pickle calls."""

    def __init__(self, function, *args):
        self.made_of = (function, args)

    def __reduce__(self):
        return self.made_of


def archive(path, pickled, **storages):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", pickled)
        for key, content in storages.items():
            file.writestr(f"x/data/{key}", content)


def state(**tensors):
    return {name: np.asarray(value) for name, value in tensors.items()}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("function", [os.system, eval, getattr, __import__])
def test_a_pickle_that_calls_is_refused_and_nothing_happens(tmp_path, function, protocol):
    trace = tmp_path / "trace"
    orders = {os.system: f"touch {trace}", eval: f"open({str(trace)!r}, 'w')"}
    harm = Harm(function, orders.get(function, "os"))
    pickled = pickle.dumps({"weight": harm}, protocol)
    archive(tmp_path / "zip.bin", pickled)
    (tmp_path / "raw.bin").write_bytes(pickled)
    for name in ("zip.bin", "raw.bin"):
        with pytest.raises(CheckpointError, match=r"asks to call|instruction|not one that torch\.save wrote"):
            read_torch(tmp_path / name)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Harm(open, str(trace), "w")))  # the standard way would have run it
    assert trace.exists()


@pytest.mark.parametrize(
    "value", [[1, 2], {"a": 1}, {1: 2}, "text", collections.OrderedDict(), {"a": {"b": "c"}}, np.float64(3)]
)
def test_a_pickle_of_something_else_is_refused(tmp_path, value):
    archive(tmp_path / "x.bin", pickle.dumps(value, 2))
    with pytest.raises(CheckpointError, match=r"x\.bin"):
        read_torch(tmp_path / "x.bin")


def one_tensor(size, offset, shape, strides, kind="FloatStorage"):
    """The pickle of {'w': tensor} with any numbers in it."""
    text = lambda s: b"X" + len(s).to_bytes(4, "little") + s.encode()  # noqa: E731
    integer = lambda i: b"\x8a\x09" + int(i).to_bytes(9, "little", signed=True)  # noqa: E731
    entries = [b"\x80\x02}(", text("w"), b"ctorch._utils\n_rebuild_tensor_v2\n(("]
    entries += [text("storage"), f"ctorch\n{kind}\n".encode(), text("0"), text("cpu"), integer(size), b"tQ"]
    entries += [integer(offset), b"(", *map(integer, shape), b"t(", *map(integer, strides), b"t"]
    return b"".join([*entries, b"\x89ccollections\nOrderedDict\n)RtRu."])


@pytest.mark.parametrize(
    ("size", "offset", "shape", "strides"),
    [
        (4, 0, (5,), (1,)),
        (4, 3, (2,), (1,)),
        (4, 0, (2, 2), (4, 1)),
        (4, 0, (2,), (2**61,)),
        (4, -1, (2,), (1,)),
        (4, 0, (2,), (-1,)),
        (4, 0, (-2,), (1,)),
        (4, 0, (2**31, 2**31), (0, 0)),
        (4, 0, (2, 2), (1,)),
        (8, 0, (8,), (1,)),
        (2**62, 0, (2,), (1,)),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(tmp_path, size, offset, shape, strides):
    archive(tmp_path / "x.bin", one_tensor(size, offset, shape, strides), **{"0": np.zeros(4, np.float32).tobytes()})
    with pytest.raises(CheckpointError):
        read_torch(tmp_path / "x.bin")["w"].load()


def test_an_unknown_storage_is_named(tmp_path):
    archive(tmp_path / "x.bin", one_tensor(4, 0, (4,), (1,), "QInt8Storage"), **{"0": bytes(16)})
    with pytest.raises(CheckpointError, match="QInt8Storage"):
        read_torch(tmp_path / "x.bin")


def test_damage_inside_a_tensor_is_found(tmp_path):
    write_torch(tmp_path / "x.bin", state(w=np.arange(1000, dtype=np.float32)))
    content = bytearray((tmp_path / "x.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match="copy it again"):
        read_torch(tmp_path / "x.bin")["w"].load()


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, -1])
def test_a_truncated_file_is_refused(tmp_path, keep):
    write_torch(tmp_path / "x.bin", state(w=np.arange(1000, dtype=np.float32)))
    content = (tmp_path / "x.bin").read_bytes()
    (tmp_path / "x.bin").write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CheckpointError, match=r"x\.bin"):
        read_torch(tmp_path / "x.bin")


def test_what_is_written_is_read_and_always_the_same_bytes(tmp_path):
    tensors = state(
        a=np.arange(6, dtype=np.float32).reshape(2, 3),
        b=np.float16(2.5),
        c=np.zeros((0, 3), np.float32),
        d=np.arange(3),
        e=np.array([True, False]),
    )
    write_torch(tmp_path / "x.bin", tensors)
    write_torch(tmp_path / "y.bin", tensors)
    assert (tmp_path / "x.bin").read_bytes() == (tmp_path / "y.bin").read_bytes()
    again = read_torch(tmp_path / "x.bin")
    assert list(again) == list(tensors)
    for name, tensor in tensors.items():
        value = again[name].load()
        assert value.dtype == tensor.dtype == again[name].dtype
        assert np.array_equal(value, tensor)
        assert value.shape == again[name].shape


@given(data=st.data())
def test_no_bytes_do_anything_but_read_or_be_refused(data):
    valid = program(state(weight=np.zeros((2, 3), np.float32), bias=np.zeros(3, np.float16)))
    place = data.draw(st.integers(0, len(valid) - 1))
    junk = data.draw(st.binary(max_size=6))
    cut = data.draw(st.integers(0, 6))
    with contextlib.suppress(CheckpointError):
        interpret(io.BytesIO(valid[:place] + junk + valid[place + cut :]))


@pytest.mark.parametrize("tail", [b"N0s.", b"Ns.", b"\x85Ns.", b"0}(NNu."])
def test_a_value_nested_without_end_does_not_overflow(tmp_path, tail):
    archive(tmp_path / "x.bin", b"\x80\x02}" + b"N" + b"\x85" * 300_000 + tail)
    with pytest.raises(CheckpointError):
        read_torch(tmp_path / "x.bin")


def test_shapes_that_are_no_numbers_are_refused(tmp_path):
    archive(tmp_path / "x.bin", one_tensor(4, 0, (4,), (1,)), **{"0": bytes(16)})
    assert read_torch(tmp_path / "x.bin")["w"].shape == (4,)
    nested = one_tensor(4, 0, (), ()).replace(b"(t(t", b"(" + b")" + b"\x85" * 100_000 + b"t(Nt")
    archive(tmp_path / "y.bin", nested, **{"0": bytes(16)})
    with pytest.raises(CheckpointError, match="no numbers"):
        read_torch(tmp_path / "y.bin")
