"""The peer's losses term by term, on logits alone: every option and every kind of label row."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import RagSequenceForGeneration, RagTokenForGeneration

from rag_jax.rag import hf_compat
from tests.parity.programs import run

PAD, BOS = 1, 0
LABELS = {
    "ordinary": [[0, 5, 6, 7, 2], [0, 8, 9, 2, 1]],
    "decoder start before <s>": [[2, 0, 5, 6, 2], [2, 0, 7, 2, 1]],
    "<s> in one row only": [[2, 0, 5, 6, 2], [2, 9, 5, 6, 2]],
    "one target": [[2, 5], [2, 6]],
    "one target, then padding": [[0, 5, 1, 1], [0, 6, 2, 1]],
    "no target": [[2], [2]],
}


def peer_loss(logits, scores, labels, variant, smoothing, reduce, exclude):
    generator = SimpleNamespace(pad_token_id=PAD, bos_token_id=BOS)
    model = SimpleNamespace(config=SimpleNamespace(generator=generator, bos_token_id=None, n_docs=scores.shape[1]))
    args = (torch.tensor(logits).flatten(0, 1), torch.tensor(scores), torch.tensor(labels))
    if variant == "token":
        model.marginalize = lambda *a: RagTokenForGeneration.marginalize(model, *a)
        return RagTokenForGeneration.get_nll(model, *args, reduce_loss=reduce, epsilon=smoothing)
    return RagSequenceForGeneration.get_nll(
        model, *args, reduce_loss=reduce, epsilon=smoothing, exclude_bos_score=exclude
    )


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_losses_are_the_peers_for_every_kind_of_label_row(rng, labels):
    labels = np.array(labels, np.int32)
    logits = rng.normal(size=(2, 3, labels.shape[1], 11)).astype(np.float32) * 2
    scores = rng.normal(size=(2, 3)).astype(np.float32) * 3
    cases = [
        (variant, smoothing, reduce, exclude)
        for variant in ("sequence", "token")
        for smoothing in (0.0, 0.1)
        for reduce in (False, True)
        for exclude in (False, True)[: 2 if variant == "sequence" else 1]
    ]

    def all_cases(logits, scores, labels):
        losses = []
        for variant, smoothing, reduce, exclude in cases:
            options = {"pad_id": PAD, "label_smoothing": smoothing, "reduce": reduce}
            if variant == "token":
                losses.append(hf_compat.token_loss(logits, scores, labels, **options))
            else:
                options |= {"bos_id": BOS, "exclude_bos_score": exclude}
                losses.append(hf_compat.sequence_loss(logits, scores, labels, **options))
        return losses

    ours = run(all_cases, *map(jnp.asarray, (logits, scores, labels)))
    for loss, case in zip(ours, cases, strict=True):
        theirs = peer_loss(logits, scores, labels, *case)
        np.testing.assert_allclose(loss, theirs, rtol=1e-5, atol=1e-6, err_msg=str(case))
