"""HOST. A configuration from nested values and back, its validation, and the step that makes it final."""

import dataclasses
import difflib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rag_jax.config.schema import (
    FIELDS,
    LEAVES,
    OF_REGEXES,
    OPTIONAL,
    Config,
    ConfigError,
    Group,
    Names,
    unknown_field,
)


def _typed(path: str, type_: Any, value: Any) -> Any:
    """`value` as `type_`; an int is a float too, a list is a tuple too (JSON has no other); nothing else converts."""
    if type_ is Names and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    optional = type_ in OPTIONAL
    plain = OPTIONAL[type_] if optional else type_
    if (optional and value is None) or type(value) is plain:
        return value
    if plain is float and type(value) is int:
        return float(value)
    name = "a tuple of str" if type_ is Names else plain.__name__ + " or None" * optional
    raise ConfigError(f"config.{path}: expected {name}, got {type(value).__name__} {value!r}")


def _build(path: str, group: type, values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"config.{path}: expected a group of fields, got {type(values).__name__} {values!r}")
    known = {}
    for name, value in values.items():
        inner = f"{path}.{name}" if path else str(name)
        if inner not in FIELDS:
            raise ConfigError(unknown_field(inner, list(FIELDS)))
        type_: Any = FIELDS[inner].type
        known[name] = (_build if dataclasses.is_dataclass(type_) else _typed)(inner, type_, value)
    return group(**known)


def from_dict(values: Mapping[str, Any]) -> Config:
    """Config from nested mappings; fields that are left out keep their defaults. Not yet validated: see `finalise`.

    Raises:
      ConfigError: an unknown field (with the nearest that exists), or a value of another type.
    """
    return _build("", Config, values)


def k_at_test(config: Config) -> int:
    """Passages for each question when it is answered: `eval.k`, or as in training."""
    return config.k if config.eval.k is None else config.eval.k


def to_json(config: Config) -> str:
    """`config` as JSON text, in the order of the schema, indented for people."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """The inverse of `to_json`, as strict as `from_dict`."""
    return from_dict(json.loads(text))


def _check(config: Config) -> None:
    if config.index.backend == "bm25":
        raise ConfigError("config.index.backend: 'bm25' compares words, not vectors; give config.retriever=bm25")
    for path in LEAVES:
        value, meta = get(config, path), FIELDS[path].metadata
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"config.{path}: {value} is not a finite number")
        words = value if isinstance(value, tuple) else (value,)
        for word in words if "choices" in meta else ():
            if word not in meta["choices"]:
                nearest = difflib.get_close_matches(word, meta["choices"], 1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                raise ConfigError(f"config.{path}: {word!r} is not one of {', '.join(meta['choices'])}{hint}")
        below = meta.get("below", math.inf)
        if "low" in meta and value is not None and not meta["low"] <= value < below:
            bound = f" and less than {below}" if below < math.inf else ""
            raise ConfigError(f"config.{path}: {value} must be at least {meta['low']}{bound}")
    for pattern in config.freeze:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"config.freeze: {pattern!r} is neither a name nor a regex: {error}") from None
    _check_retrieval(config)
    if config.index.refresh_every:
        _check_refresh(config)
    if config.train.retrieval_lag and (config.index.in_step or config.index.refresh_every):
        raise ConfigError("config.train.retrieval_lag: only the host's search can lag, in an index that stays as it is")
    if config.recipe == "dpr":
        _check_dpr(config)
    m = config.model
    if m.unroll > 1 and m.remat != "none":
        what = f"with {m.unroll} layers in a pass nothing is recomputed, whatever config.model.remat={m.remat} says"
        raise ConfigError(f"config.model.unroll: {what}; set it to 1, or config.model.remat=none")
    if "regex" in config.eval.metrics and not config.data.regex_answers:
        raise ConfigError("config.eval.metrics: regex takes answers that are regexes, config.data.regex_answers=true")
    of_texts = [name for name in config.eval.metrics if name not in OF_REGEXES]
    if config.data.regex_answers and of_texts:
        what = f"{', '.join(of_texts)} of answers that are regexes (config.data.regex_answers) would mean nothing"
        raise ConfigError(f"config.eval.metrics: {what}; take some of {', '.join(OF_REGEXES)}")
    _check_validation(config)
    _check_labels(config)
    size, parts = config.train.batch_size, config.train.accumulate
    if size % parts:
        raise ConfigError(f"config.train.accumulate: {parts} does not divide config.train.batch_size, {size}")
    if config.sharding.params == "fsdp" and config.sharding.optimizer == "replicated":
        raise ConfigError("config.sharding.optimizer: replicated, although config.sharding.params=fsdp cuts parameters")
    pairs = [("optimizer.warmup_steps", "train.steps"), ("data.max_question_tokens", "data.max_source_tokens")]
    for small, large in pairs:  # a longer question would leave no room for a passage
        if get(config, small) > get(config, large):
            what = f"{get(config, small)} is more than config.{large}, {get(config, large)}"
            raise ConfigError(f"config.{small}: {what}; set it lower (--config.{small}=...), or that higher")


def _check_retrieval(config: Config) -> None:
    asked = {config.retriever, config.eval.retriever or config.retriever}
    if config.data.hf_compat_input and "none" in asked:
        raise ConfigError("config.data.hf_compat_input: closed book has no passage to put before the question")
    if config.index.dtype and config.index.backend not in ("scann", "device"):
        raise ConfigError(f"config.index.dtype: {config.index.backend} has no choice of dtype; scann and device have")
    if config.index.in_step and config.retriever != "dpr":
        missing = f"a step searches vectors, which retriever={config.retriever} has not"
        raise ConfigError(f"config.index.in_step: {missing}; give config.index.in_step=false")
    if config.index.in_step and config.index.backend != "device":
        raise ConfigError("config.index.in_step: retrieval inside the step takes config.index.backend=device")
    if config.index.in_step and config.data.hf_compat_input:
        raise ConfigError("config.index.in_step: config.data.hf_compat_input joins texts, which only the host can")
    if config.index.remainders and config.index.dtype != "int8":
        raise ConfigError("config.index.remainders: they are those of config.index.dtype=int8")
    if config.null_document == "none":
        return
    if config.retriever == "none":
        raise ConfigError("config.null_document: in closed book every question has an empty passage and no other")
    if config.variant == "fid":
        raise ConfigError("config.null_document: Fusion-in-Decoder has no p(z|x) that would weigh it")
    if config.null_document != "bias" and not asked <= {"dpr", "none"}:
        raise ConfigError(
            f"config.null_document: {config.null_document} reads the question's vector, which only retriever=dpr has; "
            "give config.null_document=bias"
        )


def _check_refresh(config: Config) -> None:
    """Refuses what cannot be with a passage encoder that is trained."""
    name = "config.index.refresh_every"
    if not has_towers(config):
        raise ConfigError(f"{name}: passages are embedded again for a retriever of two towers; set it to 0")
    if config.variant == "fid":
        raise ConfigError(f"{name}: with Fusion-in-Decoder no gradient reaches the passage encoder; set it to 0")
    if any(re.match(rf"(?:{pattern})(?:/|$)", "passage_encoder") for pattern in config.freeze):
        raise ConfigError(f"{name}: config.freeze holds the passage encoder, whose vectors never change; set it to 0")
    if config.index.directory:
        raise ConfigError(
            f"config.index.directory: with {name} the index changes with the run and lies in the run directory; "
            "to begin with one that exists, copy it to WORKDIR/index"
        )


def _check_dpr(config: Config) -> None:
    """Refuses what recipe 'dpr' cannot do."""
    if config.data.dataset not in ("files", "world_facts"):
        raise ConfigError(f"config.data.dataset: recipe dpr reads files or world_facts, not {config.data.dataset}")
    if config.train.accumulate > 1:
        raise ConfigError("config.train.accumulate: in parts a batch would have fewer negatives; recipe dpr takes 1")
    if config.data.dataset == "world_facts" and config.dpr.hard_negatives:
        raise ConfigError("config.dpr.hard_negatives: the batches of World Facts hold them already; set it to 0")
    if config.index.refresh_every:
        raise ConfigError("config.index.refresh_every: recipe dpr trains without an index; set it to 0")


def _check_validation(config: Config) -> None:
    t = config.train
    if t.validation_questions and config.recipe != "rag":
        raise ConfigError(f"config.train.validation_questions: recipe {config.recipe} answers none; set it to 0")
    if t.keep_best and not t.validation_questions:
        raise ConfigError("config.train.keep_best: the best are told by config.train.validation_questions, which is 0")
    if config.eval.checkpoint == "best" and not t.keep_best:
        raise ConfigError("config.eval.checkpoint: the best one is kept with config.train.keep_best, which is 0")


def _check_labels(config: Config) -> None:
    labels = config.data.labels
    if labels and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ConfigError(f"config.data.labels: {', '.join(labels)}: give two words or more, each once")
    if labels and config.eval.beams > 1:
        raise ConfigError("config.eval.beams: the likeliest of config.data.labels needs no search; leave it 1")


def has_towers(config: Config) -> bool:
    """Whether passages are found by vectors, which takes the retriever's two encoders."""
    return config.retriever == "dpr"


# Fields of training -> those of evaluation that follow from them where they are not given; see `finalise`.
AS_TRAINED = {"k": "eval.k", "retriever": "eval.retriever"}


def finalise(config: Config) -> Config:
    """Validates, derives and freezes; the argument is left as it was, and a final configuration comes back equal.

    Derived: `eval.retriever` and `eval.k` (as trained); with `data.labels` `data.max_target_tokens` is 1, a label's
    token; in closed book k is 1; Fusion-in-Decoder freezes the question encoder; where none is trained there is no
    `retriever_learning_rate`.

    Raises:
      ConfigError: an ill-typed value, one out of range, or two that contradict each other.
    """
    config = from_dict(dataclasses.asdict(config))  # a copy, and the types that assignment did not check
    _check(config)
    config.eval.retriever = config.eval.retriever or config.retriever
    if config.retriever == "none":
        config.k = 1
    if config.eval.retriever == "none":
        config.eval.k = 1
    if config.variant == "fid" and has_towers(config) and "question_encoder" not in config.freeze:
        config.freeze = (*config.freeze, "question_encoder")
    if config.variant == "fid" or not has_towers(config):
        config.optimizer.retriever_learning_rate = None
    config.eval.k = config.eval.k or config.k
    if config.data.labels:
        config.data.max_target_tokens = 1
    for group in (*vars(config).values(), config):
        if isinstance(group, Group):
            object.__setattr__(group, "_frozen", True)
    return config


def as_evaluated(config: Config) -> Config:
    """A final configuration with the retriever that evaluation asks for in the place of training's.

    If only one of them searches words, the index lies beside training's, so that neither replaces the other. Only
    vectors are searched inside a step. In closed book there is no null document.
    """
    changed, asked = from_dict(dataclasses.asdict(config)), config.eval.retriever
    changed.retriever = asked
    if asked != "dpr":
        changed.index.in_step, changed.index.refresh_every = False, 0
    if asked == "none":
        changed.null_document = "none"
    if changed.index.directory and asked != config.retriever and "bm25" in (asked, config.retriever):
        changed.index.directory += f"-{asked}"
    return finalise(changed)


def on_other_devices(config: Config) -> Config:
    """A final configuration as it is where its run is read: on which devices it was trained does not count there."""
    changed = from_dict(dataclasses.asdict(config))
    changed.sharding = type(changed.sharding)()
    return finalise(changed)


def get(config: Config, path: str) -> Any:
    """The value at a dotted path such as 'optimizer.learning_rate'."""
    for name in path.split("."):
        config = getattr(config, name)
    return config


def update(config: Config, values: Mapping[str, Any]) -> Config:
    """Sets dotted path -> value in place, in the form that `parse_arg` returns, and gives `config` back."""
    for path, value in values.items():
        if path not in FIELDS:
            raise ConfigError(unknown_field(path, list(FIELDS)))
        parent, _, name = path.rpartition(".")
        setattr(get(config, parent) if parent else config, name, _typed(path, FIELDS[path].type, value))
    return config
