"""HOST. `rag-jax export`: what a run trained, as a weights directory."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import pathlib
from typing import Annotated

import typer

from rag_jax.commands.plainly import told_plainly


def export(
    run: Annotated[pathlib.Path, typer.Argument(help="The run's directory, train.py's --workdir.")],
    destination: Annotated[pathlib.Path, typer.Argument(help="The weights directory to make.")],
    dtype: Annotated[str, typer.Option(help="Storage type: float32, float16 or bfloat16.")] = "float32",
) -> None:
    """Writes a run's newest checkpoint as weights, for `config.model.init_from` and `rag-jax convert`.

    The passage encoder goes with them: the one that the run began with or, where it was trained, its own. A run with
    eval.checkpoint=best gives its best one. The data that it was trained on need not be there.

    Example:
      rag-jax export runs/nq nq-weights
    """
    from rag_jax.config import finalise, from_json, on_other_devices
    from rag_jax.experiment import load_parts, sizes, trained_parts
    from rag_jax.models.hf import variant_name
    from rag_jax.rag.model import save_weights
    from rag_jax.text.datasets import Collection
    from rag_jax.training.loop import trained_params

    with told_plainly():
        config = on_other_devices(finalise(from_json((run / "config.json").read_text("utf-8"))))
        parts = load_parts(config, Collection((), (), ()))
        parts, params = trained_parts(parts, trained_params(config, run, parts))
        if parts.passage_encoder is not None:
            params |= {"passage_encoder": parts.passage_encoder}
        # A rate of 0 would stay 0 in whatever is trained from these weights.
        arch, _ = sizes(config, own_dropout=False)
        serves_both = config.retriever == "none" or config.recipe == "dpr"
        variant = None if serves_both else config.variant
        save_weights(destination, params, arch, parts.tokenizers, variant=variant, dtype=dtype)
    typer.echo(f"{destination}: {', '.join(sorted(params))}" + (f", {variant_name(variant)}" if variant else ""))
