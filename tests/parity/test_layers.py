"""Layer by layer against torch: embeddings, attention, one layer, encoder, decoder, and the vectors of the towers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from rag_jax.models import hf
from rag_jax.models.bart import Bart, DecoderLayer, EncoderLayer
from rag_jax.models.bert import Bert, BertLayer
from rag_jax.models.layers import Attention
from tests.parity.peer import make_case, scatter, to_torch
from tests.parity.programs import run

ATOL = 1e-5


@pytest.fixture(scope="module", params=[101, 102])
def case(request):
    return make_case(request.param)


def flat(case):
    """Sources as rows, and labels repeated for every passage."""
    return (
        case.source.reshape(-1, case.source.shape[-1]),
        case.source_mask.reshape(-1, case.source.shape[-1]),
        jnp.repeat(case.labels, case.source.shape[1], axis=0),
    )


def states(case, shape):
    return jax.random.normal(jax.random.key(0), shape)


def additive(mask):
    """A boolean mask as torch's layers want it: zero, or hugely negative."""
    return torch.where(torch.tensor(np.asarray(mask)), 0.0, torch.finfo(torch.float32).min)


def causal(length):
    return jnp.tril(jnp.ones((1, 1, length, length), bool))


def layer_of(params, name, number):
    return jax.tree.map(lambda leaf: leaf[number], params[name])


def assert_close(ours, theirs):
    theirs = theirs.detach().numpy()
    assert np.abs(theirs).max() > 0.1
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=ATOL, rtol=0)


def generator(case):
    """Our generator as a function, its config and parameters, and the peer's."""
    config, params = case.ours.generator, case.ours.params["generator"]
    model = Bart(config)

    def apply(*args, method=None):
        return run(lambda params, *args: model.apply({"params": params}, *args, method=method), params, *args)

    return apply, config, params, case.torch["sequence"].generator


def test_embeddings_are_equal(case):
    apply, _, _, peer = generator(case)
    source, _, labels = flat(case)
    for side, ids, half in (("encoder", source, peer.model.encoder), ("decoder", labels, peer.model.decoder)):
        ours = apply(ids, jnp.arange(ids.shape[1])[None], method=functools.partial(Bart.embed, side=side))
        theirs = half.embed_tokens(to_torch(ids)) + half.embed_positions(to_torch(ids))
        assert_close(ours, half.layernorm_embedding(theirs))


def test_attention_is_equal(case):
    _, c, params, peer = generator(case)
    x = states(case, (2, 7, c.width))
    context = jax.random.normal(jax.random.key(1), (2, 5, c.width))
    mask = jnp.ones((2, 1, 1, 5), bool).at[1, :, :, 3:].set(False)
    for part, name, over, seen in (
        ("attention", "self_attn", None, causal(7)),
        ("cross_attention", "encoder_attn", context, mask),
    ):
        own = layer_of(params, "decoder_layers", 0)[part]
        attention = Attention(c.width, c.decoder_heads, 0.0, jnp.float32, 0.02)
        ours = run(attention.apply, {"params": own}, x, x if over is None else over, seen)
        there = getattr(peer.model.decoder.layers[0], name)
        given = None if over is None else to_torch(over)
        theirs = there(to_torch(x), key_value_states=given, attention_mask=additive(seen))[0]
        assert_close(ours, theirs)


def test_one_layer_of_each_stack_is_equal(case):
    _, c, params, peer = generator(case)
    x, encoded = states(case, (2, 6, c.width)), jax.random.normal(jax.random.key(2), (2, 5, c.width))
    mask = jnp.ones((2, 1, 1, 6), bool).at[0, :, :, 4:].set(False)
    number = c.encoder_layers - 1
    own = {"params": layer_of(params, "encoder_layers", number)}
    theirs = peer.model.encoder.layers[number](to_torch(x), additive(mask))
    ours, _ = run(lambda own, *args: EncoderLayer(c).apply(own, *args, True), own, x, mask)
    assert_close(ours, theirs[0] if isinstance(theirs, tuple) else theirs)

    number = c.decoder_layers - 1
    cross_mask = jnp.ones((2, 1, 1, 5), bool).at[1, :, :, 2:].set(False)
    own = {"params": layer_of(params, "decoder_layers", number)}
    theirs = peer.model.decoder.layers[number](
        to_torch(x),
        attention_mask=additive(causal(6)),
        encoder_hidden_states=to_torch(encoded),
        encoder_attention_mask=additive(cross_mask),
    )
    inputs = (x, causal(6), encoded, cross_mask)
    ours, _ = run(lambda own, *args: DecoderLayer(c).apply(own, *args, None, True), own, *inputs)
    assert_close(ours, theirs[0] if isinstance(theirs, tuple) else theirs)


def test_one_layer_of_the_tower_is_equal(case):
    c, params = case.ours.question_encoder, case.ours.params["question_encoder"]
    x = states(case, (2, 6, c.width))
    mask = jnp.ones((2, 1, 1, 6), bool).at[0, :, :, 4:].set(False)
    peer = case.torch["sequence"].question_encoder.question_encoder.bert_model
    theirs = peer.encoder.layer[c.layers - 1](to_torch(x), additive(mask))
    own = {"params": layer_of(params, "layers", c.layers - 1)}
    ours, _ = run(lambda own, *args: BertLayer(c).apply(own, *args, True), own, x, mask)
    assert_close(ours, theirs[0] if isinstance(theirs, tuple) else theirs)


def test_encoder_and_decoder_are_equal(case):
    apply, _, _, peer = generator(case)
    source, mask, labels = flat(case)
    encoded = apply(source, mask, method=Bart.encode)
    theirs = peer.model.encoder(to_torch(source), attention_mask=to_torch(mask)).last_hidden_state
    real = np.asarray(mask)[..., None]
    # What stands in a padded place is nobody's business: it is masked wherever it is read.
    assert_close(np.where(real, encoded, 0), torch.where(torch.tensor(real), theirs, 0.0))
    decoded = apply(labels, encoded, mask, method=Bart.decode)
    theirs = peer.model.decoder(
        to_torch(labels), encoder_hidden_states=to_torch(encoded), encoder_attention_mask=to_torch(mask)
    ).last_hidden_state
    assert_close(decoded, theirs)


def test_the_tower_gives_dprs_vector_and_its_states(case):
    c, params = case.ours.question_encoder, {"params": case.ours.params["question_encoder"]}
    peer = case.torch["sequence"].question_encoder
    ids = to_torch(case.question)
    assert_close(run(Bert(c).apply, params, case.question), peer(ids).pooler_output)  # both find the padding themselves
    states_of = functools.partial(Bert(c).apply, method=Bert.hidden_states)
    ours = run(states_of, params, case.question, case.question_mask)
    theirs = peer.question_encoder.bert_model(ids, attention_mask=to_torch(case.question_mask)).last_hidden_state
    real = np.asarray(case.question_mask)[..., None]
    assert_close(np.where(real, ours, 0), torch.where(torch.tensor(real), theirs, 0.0))


def test_mean_pooled_vectors_are_equal(tmp_path, case):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=case.ours.question_encoder.vocab_size,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    peer = scatter(transformers.BertModel(config))
    peer.save_pretrained(tmp_path)
    ours, params, _ = hf.load_bert(tmp_path, pooling="mean")
    mask = to_torch(case.question_mask)
    theirs = peer(to_torch(case.question), attention_mask=mask).last_hidden_state
    mean = (theirs * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    mean = torch.nn.functional.normalize(mean, dim=-1)
    assert_close(run(Bert(ours).apply, {"params": params}, case.question, case.question_mask), mean)


def test_a_padded_table_changes_no_logit(case):
    _, config, params, _ = generator(case)
    source, mask, labels = flat(case)
    logits = run(Bart(config).apply, {"params": params}, source, mask, labels)
    wide = dataclasses.replace(config, vocab_multiple=128)
    rows = wide.table_rows - config.vocab_size
    table = jnp.pad(params["tokens"]["embedding"], ((0, rows), (0, 0)))
    bias = jnp.pad(params["final_logits_bias"], (0, rows))
    padded = params | {"tokens": {"embedding": table}, "final_logits_bias": bias}
    more = run(Bart(wide).apply, {"params": padded}, source, mask, labels)
    np.testing.assert_allclose(more[..., : config.vocab_size], logits, atol=1e-6)
    assert (more[..., config.vocab_size :] < -1e30).all()
