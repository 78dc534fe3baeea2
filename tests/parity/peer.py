"""Random small RAGs at Hugging Face, made with torch, and the same weights here, passed through a checkpoint directory.

Initialised wide, so that attention is far from uniform and a wrong scale, mask or position moves every number.
"""

import copy
import dataclasses
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from transformers import BartConfig, DPRConfig, RagConfig, RagSequenceForGeneration, RagTokenForGeneration

from rag_jax.models import hf

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

SEEDS = range(20)
TORCH = {"sequence": RagSequenceForGeneration, "token": RagTokenForGeneration}


def bart_json(rng: np.random.Generator) -> BartConfig:
    heads, layers = rng.integers(1, 4, 2), rng.integers(1, 4, 2)
    return BartConfig(
        vocab_size=int(rng.integers(20, 60)),
        d_model=int(np.lcm(*heads) * rng.integers(3, 6)),
        encoder_layers=int(layers[0]),
        decoder_layers=int(layers[1]),
        encoder_attention_heads=int(heads[0]),
        decoder_attention_heads=int(heads[1]),
        encoder_ffn_dim=int(rng.integers(8, 40)),
        decoder_ffn_dim=int(rng.integers(8, 40)),
        max_position_embeddings=int(rng.integers(16, 40)),
        activation_function=str(rng.choice(["gelu", "gelu", "gelu_new", "relu", "silu"])),
        scale_embedding=bool(rng.integers(2)),
        init_std=0.2,
        dropout=0.0,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )


def dpr_json(rng: np.random.Generator) -> DPRConfig:
    heads = int(rng.integers(1, 4))
    return DPRConfig(
        vocab_size=int(rng.integers(20, 60)),
        hidden_size=heads * int(rng.integers(3, 8)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(rng.integers(8, 40)),
        max_position_embeddings=int(rng.integers(16, 40)),
        hidden_act=str(rng.choice(["gelu", "gelu", "gelu_new", "relu"])),
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def scatter(model: torch.nn.Module) -> torch.nn.Module:
    """Biases and norms off their initial zero and one, which would hide a mistake in them; positions that count."""
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if (value.is_floating_point() and value.ndim == 1) or name.endswith("final_logits_bias"):
                value.add_(torch.randn(value.shape) * 0.1)
            if "position" in name and name.endswith("weight"):  # or a tied decoder does little but repeat itself
                value.mul_(3)
    return model.eval()


def draw_weights(case: "Case", seed: int) -> "Case":
    """The same shapes and inputs with other weights: for them the programs of the first need not be compiled again."""
    torch.manual_seed(seed)
    c = case.ours.generator
    model = copy.deepcopy(case.torch["sequence"])
    with torch.no_grad():
        for value in model.parameters():
            norm = value.ndim == 1 and value.mean() > 0.5
            value.copy_(torch.randn_like(value) * 0.2 + norm)
        model.generator.final_logits_bias.zero_()
    scatter(model)
    with torch.no_grad():  # answers of different lengths
        model.generator.final_logits_bias[0, c.eos_id] += 1.5
    return dataclasses.replace(case, **both_sides(model))


def both_sides(model: torch.nn.Module) -> dict[str, Any]:
    """The model in both variants at the peer, and its copy here."""
    token = RagTokenForGeneration(copy.deepcopy(model.config)).eval()
    token.load_state_dict(model.state_dict())
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        return {"torch": {"sequence": model, "token": token}, "ours": hf.load_rag(directory, "sequence")}


@dataclasses.dataclass
class Case:
    """One model on both sides, and inputs for it, jagged rows padded at the end."""

    torch: dict[str, torch.nn.Module]
    ours: hf.RagCheckpoint
    question: jax.Array
    question_mask: jax.Array
    source: jax.Array
    source_mask: jax.Array
    labels: jax.Array
    vectors: jax.Array


def padded(rng: np.random.Generator, shape: tuple[int, ...], vocab: int, pad: int, first: int, last: int, low: int = 2):
    """Ids between `first` and `last`, rows of length `low` to full."""
    ids = rng.integers(3, vocab, shape)
    lengths = rng.integers(low, shape[-1] + 1, shape[:-1])
    lengths.flat[0] = shape[-1]
    place = np.arange(shape[-1])
    ids[..., 0] = first
    ids = np.where(place == lengths[..., None] - 1, last, ids)
    real = place < lengths[..., None]
    return np.where(real, ids, pad), real


def to_torch(values: jax.Array) -> torch.Tensor:
    """The same values for torch, which wants ids and masks as 64-bit integers."""
    copied = torch.tensor(np.asarray(values))
    return copied if copied.is_floating_point() else copied.long()


def make_case(seed: int) -> Case:
    """A model and inputs of their own sizes for every seed."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    generator, encoder = bart_json(rng), dpr_json(rng)
    passages = int(rng.integers(2, 5)) if seed else 1
    config = RagConfig.from_question_encoder_generator_configs(
        encoder, generator, n_docs=passages, retrieval_vector_size=encoder.hidden_size
    )
    models = both_sides(scatter(RagSequenceForGeneration(config)))
    batch, width, target = int(rng.integers(1, 4)), int(rng.integers(6, 15)), int(rng.integers(3, 9))
    question, question_mask = padded(rng, (batch, int(rng.integers(4, 12))), encoder.vocab_size, 0, 1, 2)
    source, source_mask = padded(rng, (batch, passages, width), generator.vocab_size, 1, 0, 2)
    labels, _ = padded(rng, (batch, target), generator.vocab_size, 1, 2, 2, low=3)
    vectors = rng.normal(size=(batch, passages, encoder.hidden_size)) * 0.5
    inputs = (question, question_mask, source, source_mask, labels, vectors)
    return Case(models["torch"], models["ours"], *map(jnp.asarray, inputs))
