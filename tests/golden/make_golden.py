"""Makes the golden files here: a small random RAG as a checkpoint, and what torch and transformers compute from it.

    pip install -e '.[test,parity]'
    python -m tests.golden.make_golden

`rag_small/` is the checkpoint, `rag_small.npz` inputs and results. Tests that have no torch compare with them.
"""

import pathlib
import shutil

import numpy as np
import torch

from tests.parity.peer import make_case, to_torch

HERE = pathlib.Path(__file__).parent
SEED = 235
MAX_TOKENS = 8
SMOOTHING = 0.1


def main() -> None:
    """Writes both."""
    case = make_case(SEED)
    results = {
        name: np.asarray(getattr(case, name))
        for name in ("question", "question_mask", "source", "source_mask", "labels", "vectors")
    }
    context = {
        "context_input_ids": to_torch(case.source).flatten(0, 1),
        "context_attention_mask": to_torch(case.source_mask).flatten(0, 1),
    }
    for variant, model in case.torch.items():
        for smoothing in (0.0, SMOOTHING):
            model.zero_grad()
            model.config.label_smoothing = smoothing
            query = model.question_encoder(to_torch(case.question), to_torch(case.question_mask))[0]
            scores = (query[:, None] * to_torch(case.vectors)).sum(-1)
            out = model(**context, doc_scores=scores, labels=to_torch(case.labels))
            out.loss.sum().backward()
            results[f"loss_{variant}_{smoothing}"] = out.loss.detach().numpy()
            for name, value in model.named_parameters():
                if smoothing == 0.0 and name.endswith(("word_embeddings.weight", "shared.weight")):
                    results[f"gradient_{variant}_{name}"] = value.grad.numpy().copy()
        model.config.label_smoothing = 0.0
    with torch.no_grad():
        out = case.torch["sequence"](**context, doc_scores=scores, labels=to_torch(case.labels))
        results |= {"query": query.detach().numpy(), "scores": scores.detach().numpy()}
        results["logits"] = out.logits.reshape(*case.source.shape[:2], *out.logits.shape[1:]).numpy()
        ids = case.torch["token"].generate(
            **context,
            doc_scores=scores,
            num_beams=1,
            do_sample=False,
            max_length=MAX_TOKENS + 1,
            decoder_start_token_id=2,
            bos_token_id=0,
            eos_token_id=2,
            pad_token_id=1,
            forced_eos_token_id=None,
        )
        results["greedy"] = ids[:, 1:].numpy().astype(np.int32)
    shutil.rmtree(HERE / "rag_small", ignore_errors=True)
    case.torch["token"].save_pretrained(HERE / "rag_small")
    np.savez_compressed(HERE / "rag_small.npz", **results)


if __name__ == "__main__":
    main()
