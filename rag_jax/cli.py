"""HOST. The command line, `rag-jax`. Every command is a few lines over a function of the library.

A new command imports what it needs inside its own body, so that `rag-jax --help` answers at once. A group of commands
has a file of its own in `rag_jax.commands`.
"""

# No `from __future__ import annotations`: typer reads the annotations' values.
import pathlib
from typing import Annotated

import typer

from rag_jax.commands.ask import ask
from rag_jax.commands.compare import compare
from rag_jax.commands.export import export
from rag_jax.commands.fit import fit
from rag_jax.commands.index import index_app
from rag_jax.commands.plainly import told_plainly
from rag_jax.commands.retrieval import retrieval
from rag_jax.commands.versions import show_versions
from rag_jax.text.printable import printable

app = typer.Typer(help="Retrieval-Augmented Generation in JAX.", no_args_is_help=True, add_completion=False)
app.add_typer(index_app, name="index")
app.command()(ask)
app.command()(export)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(fit)
app.command()(retrieval)
app.command()(compare)


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Versions and devices.", callback=show_versions, is_eager=True)
    ] = False,
) -> None:
    """Retrieval-Augmented Generation in JAX."""


Directory = Annotated[pathlib.Path | None, typer.Option(help="This part from another checkpoint.", show_default=False)]


@app.command()
def convert(
    source: Annotated[
        pathlib.Path, typer.Argument(help="A checkpoint of RAG, DPR, BERT or BART, or a weights directory.")
    ],
    destination: Annotated[pathlib.Path, typer.Argument(help="The directory to make.")],
    to: Annotated[
        str, typer.Option(help="rag-jax (a weights directory), rag, bart, bert, dpr-question or dpr-context.")
    ] = "rag-jax",
    question_encoder: Directory = None,
    passage_encoder: Directory = None,
    generator: Directory = None,
    variant: Annotated[str | None, typer.Option(help="sequence or token; as stored when not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take weights of the other variant.")] = False,
    tower: Annotated[str, typer.Option(help="Which tower --to bert writes.")] = "question_encoder",
    dtype: Annotated[str, typer.Option(help="Storage type: float32, float16 or bfloat16.")] = "float32",
    kind: Annotated[str, typer.Option("--format", help="safetensors, or bin (torch's).")] = "safetensors",
    max_shard_mb: Annotated[int | None, typer.Option(help="Cut the weights into files of this size.", min=1)] = None,
) -> None:
    """Brings weights in from Hugging Face, or out to it; torch is not needed.

    Examples:
      rag-jax convert rag-token-nq weights --variant token

      rag-jax convert dpr-question_encoder-single-nq-base weights
      --passage-encoder dpr-ctx_encoder-single-nq-base --generator bart-large

      rag-jax convert runs/nq/weights for-hugging-face --to rag --variant sequence
    """
    from rag_jax.models.hf import variant_name
    from rag_jax.models.hf_convert import read_bundle, write_bundle

    with told_plainly():
        bundle = read_bundle(
            source,
            question_encoder=question_encoder,
            passage_encoder=passage_encoder,
            generator=generator,
            variant=variant,
            force=force,
        )
        shard = None if max_shard_mb is None else max_shard_mb * 2**20
        write_bundle(destination, bundle, to, tower=tower, dtype=dtype, kind=kind, max_shard_bytes=shard)
    for name, part in bundle.parts.items():
        typer.echo(f"{name}: {part.count():,} parameters, read as {part.extras.dtype}")
        if part.extras.dropped:
            typer.echo(printable(f"  left out, as no tower uses them: {', '.join(part.extras.dropped)}"))
    if (source / "null_document.safetensors").is_file():
        typer.echo("null_document: left behind, as checkpoints have no place for one; train from the source's weights")
    typer.echo(f"{destination}: written as {to}" + (f", {variant_name(bundle.variant)}" if bundle.variant else ""))
