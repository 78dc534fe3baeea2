"""Retrieval inside the jitted step: the same passages, batch, loss and gradient as by way of the host."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.index import DeviceSettings, build_index
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag.device_retrieve import retrieve
from rag_jax.rag.model import Architecture
from rag_jax.rag.retrieve import DeviceRetriever, Retriever, make_batch
from rag_jax.rag.shapes import source_width
from rag_jax.text.tokens import Tokenizers, train_tokenizer
from rag_jax.tpu.chips import CHIPS
from rag_jax.tpu.price import price
from rag_jax.types import Batch, Passage
from tests.small_models import SMALL_BART

PASSAGES = [
    Passage("p0", "Iliad", "Homer wrote the Iliad."),
    Passage("p1", "Odyssey", "The Odyssey is by Homer."),
    Passage("p2", "Emma", "A novel."),
]
QUESTIONS = ["Who wrote Emma?", "Is Homer in Rome?"]
TOWER = BertConfig(
    vocab_size=290, width=16, layers=1, heads=2, hidden=16, max_positions=32, token_types=1, pad_id=1, init_std=0.25
)
ARCH = Architecture(TOWER, TOWER, SMALL_BART)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tokenizers, an index of three passages, the encoder's parameters, and the questions for it."""
    tokenizer = train_tokenizer([f"{p.title} {p.text}" for p in PASSAGES] + QUESTIONS, 290)
    tokenizers = Tokenizers.shared(tokenizer, max_question=16, max_passage=24, max_target=4)
    vectors = np.random.default_rng(0).standard_normal((3, 16), np.float32)
    directory = tmp_path_factory.mktemp("here") / "index"
    index = build_index(directory, PASSAGES, vectors, encoder_fingerprint="test", backend="device", recall_k=2)
    asked = tokenizers.questions(QUESTIONS)
    params = jax.jit(Bert(TOWER).init)(jax.random.key(0), asked)["params"]
    return tokenizers, index, params, asked


@pytest.mark.parametrize(("k", "null_document"), [(2, False), (2, True), (5, False)])  # 5: more than there are
def test_the_step_makes_the_batch_that_the_host_makes(made, k, null_document):
    tokenizers, index, params, asked = made
    given = (TOWER, params, asked, tokenizers.source_questions(QUESTIONS), QUESTIONS)
    expected, rows = make_batch(Retriever(index, tokenizers, k, null_document=null_document), *given)
    assert rows.shape[1] == k + null_document
    settings = DeviceSettings(recall_target=0.99)
    retriever = DeviceRetriever(index, tokenizers, k, settings, null_document=null_document)
    assert retriever.resident.tokens.dtype == jnp.uint16
    assert retriever.resident.tokens.shape[1] == 128  # so that a TPU does not copy the table before each fetch
    assert retriever.resident.longest == 24
    batch, nothing = make_batch(retriever, *given)
    assert nothing is None
    found, found_rows = jax.jit(retrieve, static_argnums=1)(retriever.resident, ARCH, params, batch)
    np.testing.assert_array_equal(found_rows, rows)
    np.testing.assert_array_equal(found.valid, expected.valid)
    assert found.null_document == expected.null_document == null_document
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    width = expected.passages.shape[-1]
    np.testing.assert_array_equal(found.passages[..., :width], expected.passages)
    assert (np.asarray(found.passages[..., width:]) == tokenizers.source.pad_token_id).all()


def test_there_is_room_for_the_longest_passage_and_no_more_than_asked_for(made):
    tokenizers, index, _, asked = made
    resident = DeviceRetriever(index, tokenizers, 2, DeviceSettings()).resident
    batch = Batch(asked, np.zeros((2, 10), np.int32))
    assert source_width(batch, 1, 160, resident) == 64  # 10 + 24 + 3, in steps of 32
    assert source_width(batch, 1, 20, resident) == 20
    assert source_width(batch, 1, 5, resident) == 13  # questions are never cut


def test_nothing_passes_through_the_host(made):
    tokenizers, index, params, asked = made
    resident = DeviceRetriever(index, tokenizers, 2, DeviceSettings(recall_target=0.99)).resident
    batch = Batch(asked, tokenizers.source_questions(QUESTIONS))
    compiled = jax.jit(retrieve, static_argnums=1).lower(resident, ARCH, params, batch).compile()
    assert not price(compiled.as_text(), CHIPS["v5e"]).host_transfers


def test_words_are_not_searched_inside_a_step(made, tmp_path):
    words = build_index(tmp_path / "i", PASSAGES, None, encoder_fingerprint="", backend="bm25")
    with pytest.raises(ValueError, match="bm25 backend searches texts"):
        DeviceRetriever(words, made[0], 2, DeviceSettings())


EIGHT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from rag_jax.index import DeviceSettings, device_index, device_rows
from rag_jax.models.bart import Bart
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag.device_retrieve import Resident, retrieve
from rag_jax.rag.loss import rag_loss
from rag_jax.rag.model import Architecture
from rag_jax.types import Batch
from tests.small_models import SMALL_BART

assert len(jax.devices()) == 8
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
rng = np.random.default_rng(0)
tower = BertConfig(
    vocab_size=290, width=16, layers=1, heads=2, hidden=16, max_positions=32, token_types=1, pad_id=1, init_std=0.25
)
arch = Architecture(tower, tower, SMALL_BART)
ids = rng.integers(2, 21, (8, 4))
params = {
    "question_encoder": jax.jit(Bert(tower).init)(jax.random.key(0), ids)["params"],
    "generator": jax.jit(Bart(SMALL_BART).init)(jax.random.key(1), ids, ids > 0, ids)["params"],
}
vectors = rng.standard_normal((203, 16), np.float32)
tokens = rng.integers(2, 21, (203, 6)).astype(np.uint16)
batch = Batch(ids, ids[:, :3], target=ids[:, :3], weight=np.ones(8, np.float32))

@jax.jit
def step(resident, params, batch):
    def loss(params):
        whole, rows = retrieve(resident, arch, params["question_encoder"], batch)
        return rag_loss(params, arch, whole, variant="token", width=12)[0], rows
    return jax.value_and_grad(loss, has_aux=True)(params)

for settings in (DeviceSettings(), DeviceSettings("int8", 0.99, over_retrieve=2, remainders=True)):
    one = Resident(device_index(vectors, settings), device_rows(tokens, columns=9), 3, 6)
    eight = Resident(device_index(vectors, settings, mesh), device_rows(tokens, mesh), 3, 6)
    assert len(eight.tokens.sharding.device_set) == 8 and eight.tokens.dtype == jnp.uint16
    cut = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, PartitionSpec("data"))), batch)
    (loss, rows), gradient = jax.device_get(step(one, params, batch))
    (other, found), other_gradient = jax.device_get(step(eight, params, cut))
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_allclose(other, loss, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient, other_gradient)
    assert any(np.abs(leaf).max() > 1e-6 for leaf in jax.tree.leaves(gradient["question_encoder"]))
print("same")
"""


@pytest.mark.slow
def test_eight_devices_give_the_loss_and_gradient_of_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", EIGHT], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "same", done.stderr[-3000:]
