"""HOST. Evaluated runs side by side: what they differ in, and series of runs that differ in one field alone."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_jax.config import FIELDS, LEAVES, Config, from_json, get
from rag_jax.evaluation.over_k import headline
from rag_jax.evaluation.run import find_runs

NOT_TRAINING = (
    "eval",
    "train.log_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.validation_questions",
    "train.keep_best",
    "data.validation_questions_path",
    "index.directory",
)
# Fields that follow from another, or mean nothing beside it, do not keep runs apart that differ in that one.
FOLLOWS = {
    "retriever": ("index", "optimizer.retriever_learning_rate"),
    "variant": ("model.force_variant", "optimizer.retriever_learning_rate"),
}
# These values decide a further field: closed book has no k, and Fusion-in-Decoder has its question encoder frozen.
DECIDES = {("retriever", "none"): ("k",), ("variant", "fid"): ("freeze",)}


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """A run that was evaluated.

    Attributes:
      name: that of its directory, with as many of those above it as no other run has the same of.
      config: as trained.
      figures: shares and counts by name, and the tables over k.
    """

    name: str
    config: Config
    figures: Mapping[str, Any]


def read_runs(paths: Sequence[str | os.PathLike[str]]) -> tuple[ComparedRun, ...]:
    """The runs at these paths, each a run or a directory of runs.

    Raises:
      FileNotFoundError: no run there, or one that was not evaluated.
      ValueError: a metrics.json that is none of ours, or runs whose first figures are of different metrics.
    """
    places = list(dict.fromkeys(run.absolute() for path in paths for run in find_runs(path)))
    runs = tuple(
        ComparedRun(name, from_json((place / "config.json").read_text("utf-8")), _figures(place))
        for place, name in _names(places).items()
    )
    first = {headline(run.figures): run.name for run in reversed(runs)}
    if len(first) > 1:
        those = ", ".join(f"{figure} of {name}" for figure, name in sorted(first.items()))
        raise ValueError(
            f"the runs' first figures are of different metrics ({those}), which no plot can have side by side: compare "
            "those that share one, or evaluate them again with eval.py --set=eval.metrics=..., the same first for all"
        )
    return runs


def _names(places: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """Each place by the end of its path, as much of it as tells it from the others."""
    length = dict.fromkeys(places, 1)
    while True:
        names = {place: str(pathlib.Path(*place.parts[-count:])) for place, count in length.items()}
        counts = collections.Counter(names.values())
        alike = [place for place in places if counts[names[place]] > 1]
        if not alike:
            return names
        length.update({place: length[place] + 1 for place in alike})


def _figures(run: pathlib.Path) -> Mapping[str, Any]:
    path = run / "metrics.json"
    if not path.is_file():
        raise FileNotFoundError(f"{run}: not evaluated (no metrics.json); run eval.py --workdir={run}")
    try:
        (figures,) = (value for name, value in json.loads(path.read_text("utf-8")).items() if name != "hot_swap")
        headline(figures)
    except (ValueError, AttributeError, TypeError, StopIteration):
        raise ValueError(f"{path}: not the figures of one run; run eval.py --workdir={run} again") from None
    return figures


def frozen(config: Config) -> str:
    """What is not trained, in words: 'neither', 'question encoder', ..."""
    return " and ".join(name.replace("_", " ") for name in config.freeze) or "neither"


READ: dict[str, Callable[[Config], Any]] = {
    "k": lambda config: config.k,
    "freeze": frozen,
    "retriever": lambda config: config.retriever,
    "variant": lambda config: config.variant,
}


def differing(runs: Sequence[ComparedRun]) -> list[str]:
    """The fields of training in which some of the runs differ."""
    return [path for path in LEAVES if not _ignored(path, ()) and len({get(run.config, path) for run in runs}) > 1]


def series(runs: Sequence[ComparedRun], field: str) -> dict[str, list[tuple[Any, float]]]:
    """Groups of runs that differ in one field alone: what sets the group apart -> (the field's value, headline figure).

    Args:
      runs: any.
      field: a name in READ.

    Returns:
      Groups with two values at least, in the order of the runs; their values in the order of the field's choices.
    """
    groups: list[tuple[dict[str, Any], dict[Any, float]]] = []
    for run in runs:
        settings = _apart_from(run.config, field)
        values = next((values for known, values in groups if known == settings), None)
        if values is None:
            groups.append((settings, values := {}))
        values[READ[field](run.config)] = run.figures[headline(run.figures)]
    _join_decided(groups)
    groups = [group for group in groups if len(group[1]) > 1]
    apart = [path for path in LEAVES if len({repr(settings.get(path)) for settings, _ in groups}) > 1]
    found = {}
    for settings, values in groups:
        name = ", ".join(_said(path, settings[path]) for path in apart if path in settings)
        found[name] = sorted(values.items(), key=lambda pair: _place(field, pair[0]))
    return found


def _place(field: str, value: Any) -> tuple[int, Any]:
    """Where a value stands among others: by the choices of its field, else ascending; nothing frozen comes first."""
    choices = FIELDS[field].metadata.get("choices", ("neither",))
    return (choices.index(value) if value in choices else len(choices), value)


def _apart_from(config: Config, field: str) -> dict[str, Any]:
    """The settings of training but for a field and what follows from it."""
    left_out = (field, *FOLLOWS.get(field, ()), *DECIDES.get((field, get(config, field)), ()))
    return {path: get(config, path) for path in LEAVES if not _ignored(path, left_out)}


def _join_decided(groups: Sequence[tuple[dict[str, Any], dict[Any, float]]]) -> None:
    """Puts what decides a further field, and so stands apart, into every group that is its own but for that field."""
    everything = max((set(settings) for settings, _ in groups), key=len, default=set())
    for settings, values in groups:
        for known, more in groups:
            if set(settings) == everything != set(known) and known.items() <= settings.items():
                values.update(more)


def _ignored(path: str, names: Sequence[str]) -> bool:
    return any(path == name or path.startswith(name + ".") for name in (*NOT_TRAINING, *names))


def _said(path: str, value: Any) -> str:
    """A setting as the name of a series: 'sequence', 'k=5', 'freeze=generator'."""
    text = (",".join(value) or "none") if isinstance(value, tuple) else str(value)
    return text if path == "variant" else f"{path.rpartition('.')[2]}={text}"
