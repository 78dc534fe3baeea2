"""A checkpoint of Hugging Face's RAG and what torch computed from it (tests/golden/make_golden.py); no torch needed."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models import hf
from rag_jax.models.bert import Bert
from rag_jax.models.hf_parts import Extras, bart_tensors, bert_tensors
from rag_jax.rag import hf_compat, marginal
from rag_jax.rag.decode import decode_token
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.score import passage_scores
from tests.parity.programs import compile_fast, run

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(GOLDEN / "rag_small.npz"))


@pytest.fixture(scope="module")
def rag():
    return hf.load_rag(GOLDEN / "rag_small", "token")


def test_losses_logits_and_gradients_are_torchs(golden, rag):
    inputs = {name: jnp.asarray(golden[name]) for name in ("source", "source_mask", "labels", "vectors")}
    question, mask = jnp.asarray(golden["question"]), jnp.asarray(golden["question_mask"])
    args = (rag.generator, inputs["source"], inputs["source_mask"])

    def forward(params, weight):
        query = Bert(rag.question_encoder).apply({"params": params["question_encoder"]}, question, mask)
        scores, labels = passage_scores(query, inputs["vectors"]), inputs["labels"]
        loss, logits = hf_compat.rag_loss(params["generator"], *args, scores, labels, variant="sequence")
        functions = {"sequence": hf_compat.sequence_loss, "token": hf_compat.token_loss}
        results = {"query": query, "scores": scores, "logits": logits, "loss_sequence_0.0": loss}
        for variant, smoothing in (("token", 0.0), ("sequence", 0.1), ("token", 0.1)):
            options = {"pad_id": rag.generator.pad_id, "label_smoothing": smoothing}
            results[f"loss_{variant}_{smoothing}"] = functions[variant](logits, scores, labels, **options)
        return sum(weight[name] * results[f"loss_{name}_0.0"].sum() for name in weight), results

    weights = {name: {v: float(v == name) for v in ("sequence", "token")} for name in ("sequence", "token")}
    program = compile_fast(jax.jit(jax.value_and_grad(forward, has_aux=True)), rag.params, weights["token"])
    for variant, weight in weights.items():
        (_, results), gradient = program(rag.params, weight)
        for name, value in results.items():
            np.testing.assert_allclose(value, golden[name], atol=1e-5, rtol=1e-4, err_msg=name)
        tower = bert_tensors(rag.question_encoder, gradient["question_encoder"], Extras(), "dpr_question")
        named = {f"rag.question_encoder.{name}": value for name, value in tower.items()}
        named |= {f"rag.generator.{n}": v for n, v in bart_tensors(rag.generator, gradient["generator"]).items()}
        checked = [name for name in golden if name.startswith(f"gradient_{variant}_")]
        assert len(checked) == 2
        for name in checked:
            ours = named[name.split("_", 2)[2]]
            np.testing.assert_allclose(ours, golden[name], atol=1e-4, rtol=1e-4, err_msg=name)


def test_greedy_rag_token_ids_are_torchs(golden, rag):
    def decode(params, source, mask, prior):
        options = DecodeOptions(max_new_tokens=golden["greedy"].shape[1])
        return decode_token(params, rag.generator, source, mask, prior, options).tokens[:, 0]

    source, mask, scores = (jnp.asarray(golden[name]) for name in ("source", "source_mask", "scores"))
    tokens = run(decode, rag.params["generator"], source, mask, marginal.log_prior(scores))
    np.testing.assert_array_equal(tokens, golden["greedy"])
