"""HOST. `rag-jax index`: build, look at, search, change, swap and verify an index of passages."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import json
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rag_jax.commands.plainly import told_plainly
from rag_jax.text.printable import printable

index_app = typer.Typer(help="Build, search, change and verify an index of passages.", no_args_is_help=True)

Directory = Annotated[pathlib.Path, typer.Argument(help="The index, a directory.", show_default=False)]
Source = Annotated[
    pathlib.Path,
    typer.Argument(
        help="Passages (.tsv with id, text, title; .jsonl; also with .gz) or documents (a folder, a Wikipedia dump).",
        show_default=False,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="A name that ships, or a weights directory; else what the index was made with.", show_default=False
    ),
]
BatchSize = Annotated[int, typer.Option(help="Passages that are embedded at a time.", min=1)]


@index_app.command()
def build(
    source: Source,
    directory: Directory,
    weights: Annotated[str, typer.Option(help="A name that ships, or a weights directory.")] = "world",
    backend: Annotated[str, typer.Option(help="scann, device, exact or bm25.")] = "scann",
    dtype: Annotated[
        str, typer.Option(help="Of the vectors that are scored: float32; bfloat16 or int8 with scann or device.")
    ] = "float32",
    recall_target: Annotated[
        float | None, typer.Option(help="device: search approximately with this recall.", show_default=False)
    ] = None,
    embeddings: Annotated[
        list[pathlib.Path] | None,
        typer.Option(
            help="Vectors that --weights made elsewhere: a file of DPR's embeddings, once for each.", show_default=False
        ),
    ] = None,
    max_passage_tokens: Annotated[int, typer.Option(help="What is longer is cut.", min=3)] = 128,
    batch_size: BatchSize = 128,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index that is there.")] = False,
) -> None:
    """Embeds passages and builds their index; after a kill the same command goes on where it was.

    Examples:
      rag-jax index build psgs_w100.tsv index --weights weights --backend scann --dtype bfloat16

      rag-jax index build psgs_w100.tsv index --weights dpr --embeddings wikipedia_passages_0 --embeddings ...
    """
    import itertools

    from rag_jax.commands.build_progress import BuildProgress
    from rag_jax.commands.towers import passage_tower
    from rag_jax.index.backends import backend_named
    from rag_jax.index.dpr_embeddings import read_dpr_embeddings
    from rag_jax.index.footprint import estimate
    from rag_jax.index.imported import build_with_embeddings
    from rag_jax.index.resume import build_resumable
    from rag_jax.text.readers import read_passages

    with told_plainly():
        texts = backend_named(backend).texts
        _check_build_options(backend, dtype, recall_target)
        if texts and embeddings:
            raise ValueError(f"--embeddings: {backend} has no vectors")
        passages = read_passages(source)
        tower = None if texts else passage_tower(weights, max_passage_tokens, batch_size)
        with BuildProgress(directory) as shown:
            common: dict[str, Any] = {
                "encoder_fingerprint": tower.fingerprint if tower else "",
                "backend": backend,
                "settings": lambda count: _settings(backend, dtype, recall_target, count),
                "overwrite": overwrite,
                "made_with": tower.made_with if tower else None,
                "started": lambda count: shown.estimate(
                    estimate(count, tower.dim if tower else 1, backend, dtype), embeds=not texts
                ),
                "progress": shown.embedded,
            }
            if embeddings and tower:
                pairs = itertools.chain.from_iterable(map(read_dpr_embeddings, embeddings))
                index = build_with_embeddings(directory, shown.reading(passages), pairs, tower.embed, **common)
            else:
                index = build_resumable(directory, shown.reading(passages), tower.embed if tower else None, **common)
    recall = index.manifest.recall
    found = f", recall {recall.value:.3f} at {recall.k}" if recall else ""
    typer.echo(f"{directory}: {len(index.passages):,} passages, {backend}{found}")


def _check_build_options(backend: str, dtype: str, recall_target: float | None) -> None:
    from rag_jax.index.device_searcher import DeviceSettings
    from rag_jax.index.footprint import BYTES, estimate

    if dtype not in BYTES or backend == "exact":
        estimate(1, 1, backend, dtype)  # refuses a dtype that the backend does not take
    if backend == "bm25" and dtype != "float32":
        raise ValueError("--dtype: bm25 has no vectors")
    if recall_target is not None and backend != "device":
        raise ValueError(f"--recall-target is for the device backend, not for {backend}")
    DeviceSettings(dtype, recall_target).check()


def _settings(backend: str, dtype: str, recall_target: float | None, count: int) -> Any:
    """The backend's settings for the options of `build`."""
    from rag_jax.index.backends import backend_named
    from rag_jax.index.device_searcher import DeviceSettings

    return (
        DeviceSettings(dtype, recall_target) if backend == "device" else backend_named(backend).with_dtype(count, dtype)
    )


@index_app.command("estimate")
def estimate_sizes(
    count: Annotated[int, typer.Argument(help="How many passages.", min=1, show_default=False)],
    dim: Annotated[int, typer.Option(help="Dimensions of their vectors; BERT-base has 768.", min=1)] = 768,
    as_json: Annotated[bool, typer.Option("--json", help="A list, in bytes.")] = False,
) -> None:
    """Memory and disk for so many passages of 100 words, for each backend and dtype, before anything is built.

    Example:
      rag-jax index estimate 21015324
    """
    from rag_jax.commands.build_progress import size
    from rag_jax.index.footprint import estimate_all

    found = estimate_all(count, dim)
    if as_json:
        names = ("memory", "disk", "disk_while_building")
        listed = [{"backend": b, "dtype": d} | {name: getattr(e, name) for name in names} for (b, d), e in found]
        typer.echo(json.dumps(listed, indent=2))
        return
    columns = ("backend", "dtype", "memory", "codes +", "vectors", "disk", "disk while building")
    numbers = [(e.memory, e.codes, e.vectors, e.disk, e.disk_while_building) for _, e in found]
    _table(columns, [(b, d, *map(size, line)) for ((b, d), _), line in zip(found, numbers, strict=True)])


@index_app.command()
def info(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="The manifest as it is.")] = False,
) -> None:
    """Shows what an index holds and what made it; reads nothing but the manifest."""
    import dataclasses

    from rag_jax.index.manifest import read_manifest

    with told_plainly():
        content = dataclasses.asdict(read_manifest(directory))
    if as_json:
        typer.echo(json.dumps(content, indent=2, sort_keys=True))
        return
    files, recall = content.pop("files"), content.pop("recall")
    content["recall"] = f"{recall['value']} at {recall['k']}, {recall['queries']} {recall['source']}" if recall else "-"
    content["size"] = f"{sum(size for size, _ in files.values()):,} bytes in {len(files)} files"
    for group in ("parameters", "made_with"):
        content[group] = ", ".join(f"{name} {value}" for name, value in content[group].items()) or "-"
    _table(("", str(directory)), [(name.replace("_", " "), str(value or "-")) for name, value in content.items()])


@index_app.command()
def search(
    directory: Directory,
    question: Annotated[str, typer.Argument(help="The question.", show_default=False)],
    k: Annotated[int, typer.Option("-k", help="How many passages.", min=1)] = 5,
    weights: Weights = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list with id, title, text and score.")] = False,
) -> None:
    """Finds the passages for a question, best first, with their scores."""
    from rag_jax.index import open_index

    with told_plainly():
        index = open_index(directory, verify_large=False)
        if not question.strip():
            raise ValueError("the question is empty")
        if index.searches_texts:
            found = index.search_texts([question], k)
        else:
            from rag_jax.commands.towers import embed_questions, tower_of

            tower = tower_of(index, weights)
            index = open_index(directory, encoder_fingerprint=tower.fingerprint, verify_large=False)
            found = index.search_scored(embed_questions(tower.made_with["weights"], [question]), k)
    pairs = zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True)
    hits = [(index.passages[row], score) for row, score in pairs if row >= 0]
    if as_json:
        listed = [{"id": p.id, "title": p.title, "text": p.text, "score": score} for p, score in hits]
        typer.echo(printable(json.dumps(listed, indent=2, ensure_ascii=False)))
    elif not hits:
        typer.echo("no passage shares a word with the question")
    else:
        rows = [(f"{score:.3f}", p.id, f"{p.title}: {p.text}" if p.title else p.text) for p, score in hits]
        _table(("score", "id", "passage"), rows)


@index_app.command()
def add(
    directory: Directory,
    source: Source,
    replace: Annotated[bool, typer.Option("--replace", help="Passages with known ids replace the old ones.")] = False,
    weights: Weights = None,
    batch_size: BatchSize = 128,
) -> None:
    """Adds passages, or replaces some; only they are embedded."""
    from rag_jax.index import open_index
    from rag_jax.index.change import add_passages
    from rag_jax.text.readers import read_passages

    with told_plainly():
        passages = list(read_passages(source))
        index = open_index(directory, verify_large=False)
        tower = None
        if not index.searches_texts:
            from rag_jax.commands.towers import tower_of

            tower = tower_of(index, weights, batch_size)
        embed, encoder = (tower.embed, tower.fingerprint) if tower else (None, "")
        changed = add_passages(directory, passages, embed, encoder_fingerprint=encoder, replace=replace)
    typer.echo(f"{directory}: {len(passages):,} passages given, {len(changed.passages):,} in the index")


@index_app.command()
def delete(
    directory: Directory,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of passages.", show_default=False)] = None,
    ids_from: Annotated[
        pathlib.Path | None, typer.Option(help="A file with an id in each line.", show_default=False)
    ] = None,
) -> None:
    """Deletes passages by their ids; if one of them is not there, nothing is deleted."""
    from rag_jax.index.change import delete_passages

    with told_plainly():
        wanted = list(ids or [])
        if ids_from is not None:
            wanted += _ids_in(ids_from)
        changed = delete_passages(directory, wanted)
    typer.echo(f"{directory}: {len(set(wanted)):,} passages deleted, {len(changed.passages):,} left")


@index_app.command()
def swap(
    directory: Directory,
    source: Annotated[pathlib.Path, typer.Argument(help="The index to put there; it stays.", show_default=False)],
    other_encoder: Annotated[
        bool, typer.Option("--other-encoder", help="Also if another encoder made it: its readers must load that one.")
    ] = False,
) -> None:
    """Puts another index in the place of this one, in one step; readers go over to it when they refresh."""
    from rag_jax.index.change import swap_index
    from rag_jax.index.manifest import read_manifest

    with told_plainly():
        encoder = read_manifest(source).encoder or None if other_encoder else None
        index = swap_index(directory, source, encoder_fingerprint=encoder)
    typer.echo(f"{directory}: now the index of {source}, {len(index.passages):,} passages")


@index_app.command()
def verify(directory: Directory, weights: Weights = None) -> None:
    """Reads a whole index and computes again all that can be; with --weights also some of its vectors."""
    from rag_jax.index.verify import verify_index

    with told_plainly():
        tower = None
        if weights is not None:
            from rag_jax.commands.towers import MAX_PASSAGE, passage_tower
            from rag_jax.index.manifest import read_manifest

            made_with = read_manifest(directory).made_with
            tower = passage_tower(weights, int(made_with.get("max_passage_tokens", MAX_PASSAGE)))
        checks = verify_index(directory, tower.embed if tower else None, tower.fingerprint if tower else None)
        for check in checks:
            if not check.fault:
                typer.echo(f"ok    {check.name}")
        if faults := [f"{check.name}: {check.fault}" for check in checks if check.fault]:
            raise ValueError("\n".join(faults))


def _ids_in(path: pathlib.Path) -> list[str]:
    try:
        return [line for line in path.read_text("utf-8").split("\n") if line]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); convert it") from error


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from rag_jax.text.printable import terminal_text

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(terminal_text(name), overflow="fold", no_wrap=number < len(columns) - 1)
    for row in rows:
        table.add_row(*map(terminal_text, row))
    Console().print(table)
