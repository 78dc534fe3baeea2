"""HOST. Every field of an experiment: its type, its default, what it may be.

A group is a plain dataclass; `FIELDS` and `LEAVES` list them all by their dotted paths.
"""

# No `from __future__ import annotations`: config_flags picks a field's parser by its type, which must not be a string.
import dataclasses
import difflib
import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar


class ConfigError(ValueError):
    """A setting that is unknown, ill-typed or out of range: its path, its value and what is allowed."""


# Annotated types get parsers of their own, in `arguments`: config_flags knows neither `none` nor a list without quotes.
Names = Annotated[tuple[str, ...], "names"]
OptionalInt = Annotated[int | None, "int or none"]
OptionalFloat = Annotated[float | None, "float or none"]
OPTIONAL = {OptionalInt: int, OptionalFloat: float}
RETRIEVERS = ("dpr", "bm25", "random", "gold", "none")

METRICS = ("em", "f1", "regex", "bleu1", "qbleu1", "rouge_l", "accuracy", "distinct_trigrams")
OF_REGEXES = ("em", "regex", "distinct_trigrams")  # metrics that mean something where answers are regexes


def _one_of(default: str, *others: str) -> Any:
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


def _within(default: int | float, low: int, below: int | float = math.inf) -> Any:
    return dataclasses.field(default=default, metadata={"low": low, "below": below})


class Group:
    """Refuses attributes that are not fields, and all changes once `finalise` has frozen it."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # groups are dataclasses

    def __setattr__(self, name: str, value: Any) -> None:
        if "_frozen" in self.__dict__:
            raise ConfigError(f"{name}: the configuration is final; make another with dataclasses.replace")
        if name not in self.__dataclass_fields__:
            raise ConfigError(unknown_field(name, list(self.__dataclass_fields__), prefix=f"{type(self).__name__}."))
        super().__setattr__(name, value)


@dataclasses.dataclass
class DataConfig(Group):
    """What to train on and how long texts may be, in tokens. Empty paths mean the data that `dataset` comes with.

    Attributes:
      dataset: 'world_facts'; 'files', which are the paths below; or a set of the paper's from its authors' files:
        natural_questions, trivia_qa, web_questions, curated_trec, ms_marco, jeopardy, fever, fever_symmetric.
      edition: of World Facts, '2016' or '2020'.
      passages_path: what passages are read from: passages, or documents that are cut into some.
      questions_path: the questions to train on.
      eval_questions_path: the questions to evaluate on.
      validation_questions_path: for `train.validation_questions`; no question of evaluation belongs in it.
      max_question_tokens: of a question, the question encoder's special tokens counted; a longer one is cut with a
        warning.
      max_passage_tokens: of a passage, its title and special tokens counted; the rest is cut.
      max_source_tokens: of question and passage joined, as the generator reads them; the passage gives way.
      max_target_tokens: of an answer with its end token.
      labels: the words that stand for the classes of a set that has some (of FEVER's: supports, refutes, not enough
        information), each one token of the generator. The answer is the likeliest of them, one token without an end
        token (the paper's section 3.4); claims of a class for which no word is left are not read.
      train_answers: of a question with several answers whether the 'first' is trained on, or 'each' in a pair.
      hf_compat_input: the generator reads passage, then question, joined and cut as Hugging Face's RAG does it; for its
        checkpoints, which had a max_source_tokens of 300.
      regex_answers: the answers to evaluate on are regexes, as in CuratedTREC.
    """

    dataset: str = "world_facts"
    edition: str = "2020"
    passages_path: str = ""
    questions_path: str = ""
    eval_questions_path: str = ""
    validation_questions_path: str = ""
    max_question_tokens: int = _within(32, 2)
    max_passage_tokens: int = _within(128, 3)
    max_source_tokens: int = _within(160, 2)
    max_target_tokens: int = _within(24, 1)
    labels: Names = ()
    train_answers: str = _one_of("first", "each")
    hf_compat_input: bool = False
    regex_answers: bool = False


@dataclasses.dataclass
class ModelConfig(Group):
    """The networks, as their weights say or by the names of presets.

    Attributes:
      question_encoder, passage_encoder, generator: presets; '' = the sizes of the weights, for random ones 'tiny'. A
        name that contradicts the weights is an error.
      init_from: 'world' = the weights that the package comes with; '' = random; else a directory of weights, as
        `rag-jax convert` makes them.
      force_variant: take weights that were trained as the other variant.
      dropout: the rate in training, for every dropout that the networks have.
      dtype: compute dtype; parameters, document scores and log-probabilities are float32 always.
      remat: what the backward pass computes again instead of storing.
      unroll: layers in one pass of the loop over them; with all of them there is no loop: on a CPU a step is quicker,
        but it takes more memory and, the deeper the network, longer to compile. Only with remat=none.
    """

    question_encoder: str = ""
    passage_encoder: str = ""
    generator: str = ""
    init_from: str = "world"
    force_variant: bool = False
    dropout: float = _within(0.1, 0, 1)
    dtype: str = _one_of("float32", "bfloat16")
    remat: str = _one_of("none", "dots", "full")
    unroll: int = _within(1, 1)


@dataclasses.dataclass
class IndexConfig(Group):
    """The passage index.

    Attributes:
      backend: how the vectors of retriever 'dpr' are searched.
      dtype: what 'scann' and 'device' score with: float32, bfloat16 or int8; '' = as the index that is there, float32
        in a new one.
      directory: '' = build it inside the run directory, and again if anything changes that it was made of. One that is
        named is built if it is not there; one that is there and does not fit is refused, and stays. Where only one of
        training and evaluation searches words, evaluation's index lies beside this one.
      in_step: retrieve inside the jitted step, from vectors and tokens that stay on the devices; with 'device'.
      recall_target: of that search on a TPU, which is approximate for speed (elsewhere it is exact); none = exact.
      over_retrieve: candidates that are scored again, as a multiple of k; 1 = none.
      remainders: beside int8 vectors keep what rounding left of them, for the scores of what was found.
      refresh_every: steps after which the passages are embedded again by the passage encoder, which then is trained
        too; 0 = it is frozen, and the index is made once, as in the paper.
    """

    backend: str = _one_of("scann", "exact", "device")
    dtype: str = _one_of("", "float32", "bfloat16", "int8")
    directory: str = ""
    in_step: bool = False
    recall_target: OptionalFloat = dataclasses.field(default=0.99, metadata={"low": 0.5, "below": 1.0})
    over_retrieve: int = _within(1, 1)
    remainders: bool = False
    refresh_every: int = _within(0, 0)


@dataclasses.dataclass
class OptimizerConfig(Group):
    """Adam with decoupled weight decay.

    Attributes:
      learning_rate: at its highest, after the warm-up.
      retriever_learning_rate: of the question encoder; none = the same.
      schedule: how it falls after the warm-up: 'linear' or 'cosine' to 0 at the last step, or not at all.
      warmup_steps: in which it rises to that.
      weight_decay: of the weights, never of biases and norms.
      clip_norm: the largest norm of the whole gradient; 0 = any.
      b1, b2: decay of the first and the second moment.
      label_smoothing: the part of the loss that is the mean over the vocabulary, inside each passage's distribution.
    """

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
class TrainConfig(Group):
    """The loop.

    Attributes:
      batch_size: questions of a step, over all devices.
      accumulate: parts that a batch is cut into, run one after the other for want of memory; the loss stays the
        batch's.
      retrieval_lag: 1 = the next batch's passages are searched for while this one trains, with the question encoder
        as it was before it; 0 = always as it is. Resumed elsewhere than at a checkpoint_every, other bits follow.
      steps: how many.
      log_every: steps between two lines of metrics.jsonl.
      checkpoint_every: steps between two checkpoints; there is always one after the last step.
      keep_checkpoints: how many of them stay, the newest.
      validation_questions: how many validation questions are answered at every checkpoint, as evaluation would answer
        them, but with the retriever of training; 0 = none. Their `eval.metrics` are in metrics.jsonl.
      keep_best: how many of the checkpoints with the highest first one of these metrics stay too.
    """

    batch_size: int = _within(64, 1)
    accumulate: int = _within(1, 1)
    retrieval_lag: int = _within(0, 0, 2)
    steps: int = _within(1000, 1)
    log_every: int = _within(10, 1)
    checkpoint_every: int = _within(500, 1)
    keep_checkpoints: int = _within(2, 1)
    validation_questions: int = _within(0, 0)
    keep_best: int = _within(0, 0)


@dataclasses.dataclass
class EvalConfig(Group):
    """Answering.

    Attributes:
      retriever: another one than in training, see `Config`; '' = as trained.
      k: passages for each question; none = as trained.
      decoding: of RAG-Sequence: 'thorough' scores a candidate under every passage, 'fast' only under those whose beams
        hold it (the paper's section 2.5).
      beams: of the search; 1 = greedy.
      batch_size: questions that are answered at a time, over all devices.
      max_questions: at most so many, evenly spaced in the set; none = all.
      metrics: of the answers, by name: em and f1 (SQuAD's; em of regexes is the regex match), regex, bleu1, qbleu1
        (question generation), rouge_l, accuracy (labels) and distinct_trigrams. See evaluation/metrics.py. Retrieval is
        measured always.
      split: of World Facts and of what TFDS prepared: 'train', 'validation' or 'test'.
      checkpoint: which of a run answers, the newest or the best that `train.keep_best` kept.
    """

    retriever: str = _one_of("", *RETRIEVERS)
    k: OptionalInt = dataclasses.field(default=None, metadata={"low": 1})
    decoding: str = _one_of("thorough", "fast")
    beams: int = _within(1, 1)
    batch_size: int = _within(32, 1)
    max_questions: OptionalInt = dataclasses.field(default=None, metadata={"low": 1})
    metrics: Names = dataclasses.field(default=("em", "f1"), metadata={"choices": METRICS})
    split: str = "test"
    checkpoint: str = _one_of("newest", "best")


@dataclasses.dataclass
class ShardingConfig(Group):
    """Where things lie when there are several devices; with one nothing of this counts. Batches are cut by questions.

    Attributes:
      params: 'replicated' = whole on every device, or 'fsdp' = cut over all of them, each layer fetched as it is used.
      optimizer: 'sharded' = its state cut over all devices, also where parameters are not; or 'replicated'.
      model: devices that share a layer's products (tensor parallelism), a divisor of a host's devices; the others cut
        the batch.
      min_elements: smaller arrays are never cut over the batch's devices.
    """

    params: str = _one_of("replicated", "fsdp")
    optimizer: str = _one_of("sharded", "replicated")
    model: int = _within(1, 1)
    min_elements: int = _within(1 << 14, 1)


@dataclasses.dataclass
class PretrainConfig(Group):
    """Making the tiny model from nothing (recipe 'world_pretrain'), see training/pretrain.py.

    Attributes:
      tower_steps: of both towers' contrastive training.
      tower_groups: questions in a batch of the towers, counted in eights.
      tower_learning_rate: at its highest.
      one_fact_steps, three_fact_steps, whole_steps: of the reader's stages, passages growing longer.
      reader_batch_size: examples in a batch of the reader.
      reader_learning_rate: at its highest.
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
class DprConfig(Group):
    """Contrastive training of both towers (recipe 'dpr'), on questions with passages in DPR's json or on World Facts.

    Attributes:
      hard_negatives: passages of a question in every batch that are likely to be mistaken for its own. World Facts has
        none to give: a country's other passages are in the batch already.
      kept_negatives: how many of a question's hard negatives a run draws from, the first in the file.
    """

    hard_negatives: int = _within(1, 0)
    kept_negatives: int = _within(10, 1)


@dataclasses.dataclass
class Config(Group):
    """One experiment.

    Attributes:
      recipe: what train.py runs: 'rag' trains a RAG, 'dpr' trains its retriever alone, 'world_pretrain' makes the tiny
        model that both start from.
      variant: which marginal of the paper, RAG-Sequence or RAG-Token; or 'fid', Fusion-in-Decoder (Izacard and Grave,
        2021), where one decoder looks at all passages: without a marginal no gradient reaches the question encoder,
        which is frozen then.
      retriever: where passages come from. 'dpr' compares the vectors of two encoders. With the others no encoder is
        loaded, and the generator alone is trained: 'bm25' compares words, and its scores are the logits of p(z|x);
        'random' draws passages by seed and question, all as probable; 'gold' is the oracle: the question's
        positive_ids, all as probable, and nothing in the places left over; 'none' is closed book: the generator sees
        the question alone, and k is 1.
      null_document: an empty passage beside the k that are found, for questions that none of them helps, and where its
        score comes from: an 'embedding' or an 'mlp', which read the question's vector, or a 'bias'.
      k: passages for each question.
      seed: of random weights, the order of questions, dropout and the random retriever.
      freeze: parameter groups that are not trained, by name (question_encoder, generator, null_document) or as regexes
        of paths.
    """

    recipe: str = _one_of("rag", "dpr", "world_pretrain")
    variant: str = _one_of("sequence", "token", "fid")
    retriever: str = _one_of(*RETRIEVERS)
    null_document: str = _one_of("none", "embedding", "bias", "mlp")
    k: int = _within(5, 1)
    seed: int = _within(0, 0, 2**32)
    freeze: Names = ()
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    index: IndexConfig = dataclasses.field(default_factory=IndexConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    sharding: ShardingConfig = dataclasses.field(default_factory=ShardingConfig)
    dpr: DprConfig = dataclasses.field(default_factory=DprConfig)
    pretrain: PretrainConfig = dataclasses.field(default_factory=PretrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)


def _schema(group: type[Group] = Config, prefix: str = "") -> dict[str, dataclasses.Field[Any]]:
    """Dotted path -> field, groups included."""
    found = {}
    for field in dataclasses.fields(group):
        found[prefix + field.name] = field
        if isinstance(field.type, type) and issubclass(field.type, Group):
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
