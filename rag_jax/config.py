"""HOST. The settings of an experiment: the schema, its validation, and the way in from a command line.

`configs/*.py` hold `get_config(arg="") -> Config`; train.py and eval.py read it through ml_collections' config_flags:

    --config=configs/world.py:variant=token,k=10 --config.optimizer.learning_rate=1e-5
    --config.freeze=question_encoder              one name
    --config.freeze=question_encoder,generator    several; no quotes, no brackets, no spaces
    --config.freeze=                              none
    --config.freeze='["layers/.{1,2}/bias"]'      a list, for a regex that holds a comma
    --config.eval.k=none                          the empty value of an optional field

The flags themselves are `rag_jax.flags`.
"""

# No `from __future__ import annotations`: config_flags picks a field's parser by its type, which must not be a string.
import ast
import dataclasses
import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from absl import flags
from ml_collections import config_flags


class ConfigError(ValueError):
    """A setting that is unknown, ill-typed or out of range: its path, its value and what is allowed."""


# Annotated types get parsers of their own below: config_flags knows neither `none` nor a list without quotes.
Names = Annotated[tuple[str, ...], "names"]
OptionalInt = Annotated[int | None, "int or none"]
OptionalFloat = Annotated[float | None, "float or none"]
_OPTIONAL = {OptionalInt: int, OptionalFloat: float}


def _one_of(default: str, *others: str) -> Any:
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


def _within(default: int | float, low: int, below: int | float = math.inf) -> Any:
    return dataclasses.field(default=default, metadata={"low": low, "below": below})


class _Group:
    """Refuses attributes that are not fields, and all changes once `finalise` has frozen it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "_frozen" in self.__dict__:
            raise ConfigError(f"{name}: the configuration is final; make another with dataclasses.replace")
        if name not in self.__dataclass_fields__:
            raise ConfigError(unknown_field(name, list(self.__dataclass_fields__), prefix=f"{type(self).__name__}."))
        super().__setattr__(name, value)


@dataclasses.dataclass
class DataConfig(_Group):
    """What to train on and how long texts may be, in tokens. Empty paths mean the data that `dataset` comes with.

    Attributes:
      hf_compat_input: the generator reads passage, then question, joined and cut as Hugging Face's RAG does it; for its
        checkpoints, which had a max_source_tokens of 300.
    """

    dataset: str = "world_facts"
    edition: str = "2020"
    passages_path: str = ""
    questions_path: str = ""
    eval_questions_path: str = ""
    max_question_tokens: int = _within(32, 1)
    max_passage_tokens: int = _within(128, 1)
    max_source_tokens: int = _within(160, 2)
    max_target_tokens: int = _within(24, 1)
    hf_compat_input: bool = False


@dataclasses.dataclass
class ModelConfig(_Group):
    """The networks, as their weights say or by the names of presets.

    Attributes:
      question_encoder, passage_encoder, generator: presets; '' = the sizes of the weights, for random ones 'tiny'. A
        name that contradicts the weights is an error.
      init_from: 'world' = the weights that the package comes with; '' = random; else a directory of weights, as
        `rag-jax convert` makes them.
      force_variant: take weights that were trained as the other variant.
      dtype: compute dtype; parameters, document scores and log-probabilities are float32 always.
      remat: what the backward pass computes again instead of storing.
    """

    question_encoder: str = ""
    passage_encoder: str = ""
    generator: str = ""
    init_from: str = "world"
    force_variant: bool = False
    dropout: float = _within(0.1, 0, 1)
    dtype: str = _one_of("float32", "bfloat16")
    remat: str = _one_of("none", "dots", "full")


@dataclasses.dataclass
class IndexConfig(_Group):
    """The passage index. `directory`: '' = build it inside the run directory."""

    backend: str = _one_of("scann", "exact")
    directory: str = ""


@dataclasses.dataclass
class OptimizerConfig(_Group):
    """Adam with decoupled weight decay. `retriever_learning_rate`: None = the same; `clip_norm`: 0 = no clipping."""

    learning_rate: float = _within(3e-5, 0)
    retriever_learning_rate: OptionalFloat = dataclasses.field(default=None, metadata={"low": 0})
    schedule: str = _one_of("linear", "constant", "cosine")
    warmup_steps: int = _within(500, 0)
    weight_decay: float = _within(1e-3, 0)
    clip_norm: float = _within(0.1, 0)
    b1: float = _within(0.9, 0, 1)
    b2: float = _within(0.999, 0, 1)
    label_smoothing: float = _within(0.1, 0, 1)


@dataclasses.dataclass
class TrainConfig(_Group):
    """The loop: `batch_size` in questions over all devices, everything else in steps."""

    batch_size: int = _within(64, 1)
    steps: int = _within(1000, 1)
    log_every: int = _within(10, 1)
    checkpoint_every: int = _within(500, 1)
    keep_checkpoints: int = _within(2, 1)


@dataclasses.dataclass
class EvalConfig(_Group):
    """Answering. `k`: None = as trained; `decoding` matters to variant 'sequence' only; `beams`: 1 = greedy."""

    k: OptionalInt = dataclasses.field(default=None, metadata={"low": 1})
    decoding: str = _one_of("thorough", "fast")
    beams: int = _within(1, 1)
    batch_size: int = _within(32, 1)
    max_questions: OptionalInt = dataclasses.field(default=None, metadata={"low": 1})
    split: str = "test"


@dataclasses.dataclass
class PretrainConfig(_Group):
    """Making the tiny model from nothing (recipe 'world_pretrain'): batches of each stage, see training/pretrain.py.

    Attributes:
      tower_groups: countries in a batch of the towers, eight passages each.
      one_fact_steps, three_fact_steps, whole_steps: the reader's stages, passages growing longer.
      reader_batch_size: examples in a batch of the reader.
    """

    tower_steps: int = _within(1500, 1)
    tower_groups: int = _within(16, 1)
    tower_learning_rate: float = _within(1e-3, 0)
    one_fact_steps: int = _within(2500, 1)
    three_fact_steps: int = _within(1500, 1)
    whole_steps: int = _within(3000, 1)
    reader_batch_size: int = _within(64, 1)
    reader_learning_rate: float = _within(1.5e-3, 0)


@dataclasses.dataclass
class Config(_Group):
    """One experiment.

    Attributes:
      recipe: what train.py runs: 'rag' trains a RAG, 'world_pretrain' makes the tiny model that it starts from.
      variant: which marginal of the paper, RAG-Sequence or RAG-Token.
      retriever: 'none' = closed book: the generator sees the question alone, and k is 1.
      k: passages for each question.
      freeze: parameter groups that are not trained, by name (question_encoder, generator) or as regexes of paths.
    """

    recipe: str = _one_of("rag", "world_pretrain")
    variant: str = _one_of("sequence", "token")
    retriever: str = _one_of("dpr", "none")
    k: int = _within(5, 1)
    seed: int = _within(0, 0, 2**32)
    freeze: Names = ()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    index: IndexConfig = dataclasses.field(default_factory=IndexConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    pretrain: PretrainConfig = dataclasses.field(default_factory=PretrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)


def _schema(group: type = Config, prefix: str = "") -> dict[str, dataclasses.Field]:
    """Dotted path -> field, groups included."""
    found = {}
    for field in dataclasses.fields(group):
        found[prefix + field.name] = field
        if dataclasses.is_dataclass(field.type):
            found |= _schema(field.type, f"{prefix}{field.name}.")
    return found


FIELDS = _schema()
LEAVES = [path for path, field in FIELDS.items() if not dataclasses.is_dataclass(field.type)]


def unknown_field(path: str, known: Sequence[str], prefix: str = "config.") -> str:
    """The message for a name that is none: the nearest by the whole path or by its last part."""

    def likeness(other: str) -> float:
        pairs = [(path, other), (path.rpartition(".")[2], other.rpartition(".")[2])]
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    nearest = max(known, key=likeness)
    hint = f"did you mean {prefix}{nearest}?" if likeness(nearest) > 0.6 else "known are " + ", ".join(known)
    return f"{prefix}{path}: no such field; {hint}"


def _typed(path: str, type_: Any, value: Any) -> Any:
    """`value` as `type_`; an int is a float too, a list is a tuple too (JSON has no other); nothing else converts."""
    if type_ is Names and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    optional = type_ in _OPTIONAL
    plain = _OPTIONAL[type_] if optional else type_
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
        type_ = FIELDS[inner].type
        known[name] = (_build if dataclasses.is_dataclass(type_) else _typed)(inner, type_, value)
    return group(**known)


def from_dict(values: Mapping[str, Any]) -> Config:
    """Config from nested mappings; fields that are left out keep their defaults. Not yet validated: see `finalise`.

    Raises:
      ConfigError: an unknown field (with the nearest that exists), or a value of another type.
    """
    return _build("", Config, values)


def to_json(config: Config) -> str:
    """`config` as JSON text, in the order of the schema, indented for people."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """The inverse of `to_json`, as strict as `from_dict`."""
    return from_dict(json.loads(text))


def _check(config: Config) -> None:
    for path in LEAVES:
        value, meta = get(config, path), FIELDS[path].metadata
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"config.{path}: {value} is not a finite number")
        if "choices" in meta and value not in meta["choices"]:
            nearest = difflib.get_close_matches(value, meta["choices"], 1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise ConfigError(f"config.{path}: {value!r} is not one of {', '.join(meta['choices'])}{hint}")
        below = meta.get("below", math.inf)
        if "low" in meta and value is not None and not meta["low"] <= value < below:
            bound = f" and less than {below}" if below < math.inf else ""
            raise ConfigError(f"config.{path}: {value} must be at least {meta['low']}{bound}")
    for pattern in config.freeze:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"config.freeze: {pattern!r} is neither a name nor a regex: {error}") from None
    if config.data.hf_compat_input and config.retriever == "none":
        raise ConfigError("config.data.hf_compat_input: closed book has no passage to put before the question")
    pairs = [("optimizer.warmup_steps", "train.steps"), ("data.max_question_tokens", "data.max_source_tokens")]
    for small, large in pairs:  # a longer question would leave no room for a passage
        if get(config, small) > get(config, large):
            raise ConfigError(f"config.{small}: {get(config, small)} is more than config.{large}, {get(config, large)}")


def finalise(config: Config) -> Config:
    """Validates, derives and freezes; the argument is left as it was, and a final configuration comes back equal.

    Derived: `eval.k` (as trained); in closed book `k` and `eval.k` are 1 and there is no `retriever_learning_rate`.

    Raises:
      ConfigError: an ill-typed value, one out of range, or two that contradict each other.
    """
    config = from_dict(dataclasses.asdict(config))  # a copy, and the types that assignment did not check
    _check(config)
    if config.retriever == "none":
        config.k = config.eval.k = 1
        config.optimizer.retriever_learning_rate = None
    config.eval.k = config.eval.k or config.k
    for group in (*vars(config).values(), config):
        if isinstance(group, _Group):
            object.__setattr__(group, "_frozen", True)
    return config


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


class _NamesParser(flags.ArgumentParser):
    def parse(self, argument: Any) -> tuple[str, ...]:
        if not isinstance(argument, str):
            return tuple(argument)
        try:
            value = ast.literal_eval(argument)
        except (ValueError, SyntaxError):
            value = None
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return tuple(name.strip() for name in argument.split(",") if name.strip())


class _OptionalParser(flags.ArgumentParser):
    def __init__(self, parser: flags.ArgumentParser):
        self.inner = parser

    def parse(self, argument: Any) -> Any:
        empty = isinstance(argument, str) and argument.lower() == "none"
        return None if empty or argument is None else self.inner.parse(argument)


_PARSERS = {
    Names: _NamesParser(),
    OptionalInt: _OptionalParser(flags.IntegerParser()),
    OptionalFloat: _OptionalParser(flags.FloatParser()),
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
}
for _type, _parser in _PARSERS.items():
    config_flags.register_flag_parser_for_type(_type, _parser)


def parse_arg(arg: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The string after the colon in `--config=file.py:variant=token,k=10`, as {'variant': 'token', 'k': 10}.

    Names are fields, dotted below the top (`optimizer.learning_rate=1e-5`), or words in `also`, whose values stay
    strings. Choices are not checked here, so a config file may give meaning to a value of its own. A piece without `=`
    continues a list: `freeze=question_encoder,generator`.

    Raises:
      ConfigError: an unknown name (with the nearest that exists), a name given twice, or an ill-typed value.
    """
    found: dict[str, Any] = {}
    last = ""
    for piece in filter(None, (part.strip() for part in arg.split(","))):
        name, equals, text = piece.partition("=")
        if not equals and last and FIELDS.get(last) and FIELDS[last].type is Names:
            found[last] += (piece,)
            continue
        if name not in also and name not in LEAVES:
            raise ConfigError(unknown_field(name, [*also, *LEAVES]))
        if not equals or name in found:
            raise ConfigError(f"config.{name}: {'given twice' if equals else 'needs a value, as in ' + name + '=...'}")
        try:
            found[name] = text if name in also else _PARSERS[FIELDS[name].type].parse(text)
        except ValueError as error:
            raise ConfigError(f"config.{name}: {text!r}: {error}") from None
        last = name
    return found
