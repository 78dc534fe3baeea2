"""HOST. A loaded model that is asked: answers, passages, scores, and answers from passages that are given."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from rag_jax.api.limits import check_answers, check_questions
from rag_jax.api.live import ChangingIndex
from rag_jax.api.model import Model
from rag_jax.api.records import Answered, Retrieved, Scored, as_passages
from rag_jax.config import k_at_test
from rag_jax.experiment import answer_questions, evaluation_layout, make_retriever, retriever_over
from rag_jax.index import Index
from rag_jax.index.in_memory import index_in_memory
from rag_jax.models.hf import variant_name
from rag_jax.rag.answer import question_rows, sources_of
from rag_jax.rag.likelihood import answer_likelihood
from rag_jax.rag.marginal import log_prior
from rag_jax.rag.retrieve import ClosedBook, Retriever, encode, make_batch
from rag_jax.rag.shapes import power_of_two, to_devices
from rag_jax.text.token_rows import FoundPassages
from rag_jax.text.tokens import trim
from rag_jax.types import Passage, Question

DECODINGS = ("thorough", "fast")
Given = TypeVar("Given")


class Rag:
    """A question encoder, an index and a generator (paper, section 2), ready to be asked. `load` makes one.

    A question or a list of questions is one program for each power of two that holds their number, compiled when it is
    first needed: all have the model's widest shape. Lists of more than a batch are cut into batches of narrower ones.

    Args:
      model: the networks and how they are asked.
      index: what passages are found in; None: there are only those that `generate` is given.

    Attributes:
      config: the model's, final: `config.variant`, `config.eval.k`, ...
      index: to be changed with `add`, `delete` and `swap`; None without one.
      params: {'question_encoder', 'generator'} or the generator alone, on the devices.

    Raises:
      ValueError: an index of vectors, and a model without a question encoder or with one of another size.
    """

    def __init__(self, model: Model, index: ChangingIndex | None = None):
        self.config, self.parts, self.index = model.config, model.parts, index
        self.layout = evaluation_layout(model.config)
        self.params = self.layout.place(model.params)
        if index is not None:
            self._check(index)

    @overload  # a str is a Sequence[str] too: the first that fits counts
    def answer(  # type: ignore[overload-overlap]
        self, question: str, k: int | None = ..., *, beams: int | None = ..., decoding: str | None = ...
    ) -> Answered: ...

    @overload
    def answer(
        self, question: Sequence[str], k: int | None = ..., *, beams: int | None = ..., decoding: str | None = ...
    ) -> list[Answered]: ...

    def answer(
        self,
        question: str | Sequence[str],
        k: int | None = None,
        *,
        beams: int | None = None,
        decoding: str | None = None,
    ) -> Answered | list[Answered]:
        """Retrieves, and writes the answer (paper, section 2.5).

        Args:
          question: one, or several; as a user would write it.
          k: passages for each; more than there are is no error. None = as configured.
          beams: of the search; 1 is greedy. The answer's `alternatives` are the others that so many beams found.
          decoding: 'thorough' or 'fast': whether RAG-Sequence scores every candidate under every passage, or counts a
            passage only for the candidates in its own beam. Says nothing to RAG-Token.

        Returns:
          An answer for one question, a list for several. Sources are the passages, best prior first.

        Raises:
          ValueError: no index, an empty question or one longer than the model reads, k or beams below 1, another
            decoding.
        """
        texts = self._questions(question)
        return _like(question, self._answers(texts, self._retriever(k), beams, decoding))

    def retrieve(self, question: str | Sequence[str], k: int | None = None) -> list[Retrieved] | list[list[Retrieved]]:
        """The k passages for a question, best first, with q.d and p(z|x) among them (paper, section 2.2).

        Args:
          question: one, or several: then a list for each.
          k: as for `answer`.

        Raises:
          ValueError: as `answer`.
        """
        texts = self._questions(question)
        retriever = self._retriever(k)
        if not texts:
            return []
        if self.index is None or isinstance(retriever, ClosedBook):
            raise ValueError("the model was trained without passages (retriever none), so it retrieves none")
        index, k = self.index.current, retriever.k
        found = index.search_texts(texts, k) if index.searches_texts else index.search_scored(self._vectors(texts), k)
        prior = np.exp(log_prior(jnp.asarray(found.scores), jnp.asarray(found.rows >= 0)))
        lists = [
            [
                Retrieved(index.passages[row], float(score), float(p))
                for row, score, p in zip(*columns, strict=True)
                if row >= 0
            ]
            for columns in zip(found.rows, found.scores, prior, strict=True)
        ]
        return _like(question, lists)

    def score(
        self, question: str | Sequence[str], answer: str | Sequence[str], k: int | None = None
    ) -> Scored | list[Scored]:
        """log p(y|x) of an answer that is given, as RAG-Sequence and as RAG-Token (paper, section 2.1), with sources.

        Args:
          question: one, or several.
          answer: as many.
          k: as for `answer`.

        Raises:
          ValueError: as `answer`; also an answer that is empty or longer than the model writes, or not one for each
            question; or the model is a Fusion-in-Decoder, which is neither of the two, or gives labels.
        """
        if self.config.data.labels:
            raise ValueError(
                f"the model gives one of the labels {', '.join(self.config.data.labels)} and writes no text to score; "
                "answer says how probable its label is, and the others are among its alternatives"
            )
        if self.config.variant == "fid":
            raise ValueError("a Fusion-in-Decoder has no p(y|x) of RAG-Sequence or RAG-Token; answer says its own")
        texts = self._questions(question)
        wanted = [answer] if isinstance(answer, str) else list(answer)
        if len(wanted) != len(texts) or isinstance(question, str) != isinstance(answer, str):
            raise ValueError(f"{len(texts)} questions and {len(wanted)} answers: give one answer for each question")
        check_answers(wanted, self.parts.tokenizers)
        retriever, size = self._retriever(k), self._size(texts)
        batches = range(0, len(texts), size)
        found = [self._scored(retriever, texts[at : at + size], wanted[at : at + size], size) for at in batches]
        return _like(question, [one for batch in found for one in batch])

    def generate(
        self,
        question: str | Sequence[str],
        passages: Iterable[str | Passage],
        *,
        beams: int | None = None,
        decoding: str | None = None,
    ) -> Answered | list[Answered]:
        """Answers from passages that are given, all of them; no index is needed.

        Their prior p(z|x) is q.d of the question and the passage encoder if the model has both, else uniform.

        Args:
          question: one, or several that read the same passages.
          passages: at least one: texts or `Passage`s.
          beams, decoding: as for `answer`.

        Raises:
          ValueError: as `answer`; also no passages, or two with one id.
        """
        texts = self._questions(question)
        given = as_passages(passages, lambda number, _: str(number))
        if not given:
            raise ValueError("no passages are given; Rag.answer finds its own in an index")
        index = index_in_memory(given, self._passage_vectors(given))
        return _like(question, self._answers(texts, self._reader(index, power_of_two(len(given))), beams, decoding))

    def __repr__(self) -> str:
        variant = "closed book" if self.config.retriever == "none" else variant_name(self.config.variant)
        return f"Rag({variant}, k={self.config.eval.k}, index={self.index!r})"

    def _questions(self, question: str | Sequence[str]) -> list[str]:
        texts = [question] if isinstance(question, str) else list(question)
        check_questions(texts, self.parts.tokenizers)
        return texts

    def _check(self, index: ChangingIndex) -> None:
        if index.current.searches_texts:
            return
        if "question_encoder" not in self.params:
            raise ValueError(
                f"{index.directory}: an index of vectors, and the model has no question encoder; build one that "
                "searches words (rag-jax index build --backend bm25)"
            )
        dim, width = index.current.manifest.dim, self.parts.arch.question_encoder.width
        if dim != width:
            raise ValueError(
                f"{index.directory}: its vectors have {dim} dimensions and the question encoder gives {width}: another "
                "encoder made it; build it again with this model's"
            )

    def _retriever(self, k: int | None) -> Retriever | ClosedBook:
        """What finds k passages; in closed book none."""
        k = k_at_test(self.config) if k is None else k
        if k < 1:
            raise ValueError(f"k={k}: must be at least 1")
        if self.config.retriever == "none":
            return make_retriever(self.config, self.parts, "", k, self.layout)
        if self.index is None:
            raise ValueError(
                "there is no index to find passages in: load(..., index=DIRECTORY) opens one, and "
                "generate(question, passages) answers from passages that are given"
            )
        return self._reader(self.index.current, k)

    def _reader(self, index: Index, k: int) -> Retriever:
        retriever = retriever_over(self.config, self.parts, index, k, self.layout)
        retriever.tokens = FoundPassages(index.passages, self.parts.tokenizers)
        return retriever

    def _size(self, texts: Sequence[str]) -> int:
        """Questions of a batch, for so many: a power of two, up to the configured size."""
        return min(power_of_two(len(texts)), self.config.eval.batch_size)

    def _answers(
        self, texts: list[str], retriever: Retriever | ClosedBook, beams: int | None, decoding: str | None
    ) -> list[Answered]:
        e = self.config.eval
        how: dict[str, Any] = {"beams": beams, "decoding": decoding, "batch_size": self._size(texts)}
        asked = dataclasses.replace(e, **{name: value for name, value in how.items() if value is not None})
        if asked.decoding not in DECODINGS:
            raise ValueError(f"decoding={decoding!r}: choose {' or '.join(DECODINGS)}")
        found = answer_questions(
            dataclasses.replace(self.config, eval=asked),
            self.parts,
            self.params,
            retriever,
            [Question("", text) for text in texts],
            alternatives=True,
            one_shape=len(texts) <= e.batch_size,
        )
        pieces = self.parts.tokenizers.pieces
        return [
            Answered(**_fields(one) | {"tokens": pieces(one.tokens), "question": text})
            for text, one in zip(texts, found, strict=True)
        ]

    def _scored(
        self, retriever: Retriever | ClosedBook, texts: Sequence[str], answers: Sequence[str], size: int
    ) -> Iterator[Scored]:
        """The answers of one batch, filled up to `size` with its last."""
        arch, tokenizers, pad = self.parts.arch, self.parts.tokenizers, self.parts.tokenizers.source.pad_token_id
        take = self._filled(len(texts), size)
        asked, source_asked = (rows[take] for rows in question_rows(tokenizers, texts, tokenizers.max_question))
        target = trim(tokenizers.targets(answers), tokenizers.target.pad_token_id, tokenizers.max_target)[take]
        encoder = arch.question_encoder, self.params.get("question_encoder")
        given = [texts[i] for i in take]
        batch, rows = make_batch(retriever, *encoder, asked, source_asked, given, target)
        batch, width = to_devices(batch, pad, self.config.data.max_source_tokens, self.layout, one_shape=True)
        found = answer_likelihood(self.params, arch, batch, width=width, layout=self.layout)
        found = self.layout.to_host(found)
        assert rows is not None  # the host has found them: nothing retrieves in the step here
        for i, (text, wanted) in enumerate(zip(texts, answers, strict=True)):
            ids = target[i][target[i] != tokenizers.target.pad_token_id]
            by_token = found.token_posterior[i][:, : len(ids)]
            logprob = {"sequence": float(found.sequence[i]), "token": float(found.token[i])}
            yield Scored(
                text=wanted,
                logprob=logprob[self.config.variant],
                sources=sources_of(retriever, rows[i], found.prior[i], found.posterior[i], by_token),
                tokens=tokenizers.pieces(tokenizers.target.convert_ids_to_tokens(ids.tolist())),
                question=text,
                sequence=logprob["sequence"],
                token=logprob["token"],
            )

    def _filled(self, count: int, size: int) -> Int[np.ndarray, "B"]:
        """Rows of a batch of `size` questions, or the next number that the devices share evenly; the last repeats."""
        parts = self.layout.parts
        return np.minimum(np.arange(-(-size // parts) * parts), count - 1)

    def _vectors(self, texts: Sequence[str]) -> Float[np.ndarray, "B D"]:
        """q(x) of the questions, float32."""
        tokenizers, size = self.parts.tokenizers, self._size(texts)
        rows, _ = question_rows(tokenizers, texts, tokenizers.max_question)
        encoder = self.parts.arch.question_encoder, self.params["question_encoder"]
        found = []
        for at in range(0, len(texts), size):
            some = rows[at : at + size]
            placed = self.layout.rows(some[self._filled(len(some), size)])
            found.append(np.asarray(encode(*encoder, placed, layout=self.layout))[: len(some)])
        return np.concatenate(found)

    @functools.cached_property
    def _passage_encoder(self) -> Any:
        return jax.device_put(self.parts.passage_encoder)

    def _passage_vectors(self, passages: Sequence[Passage]) -> Float[np.ndarray, "N D"] | None:
        """d(z) of a few passages, float32; None without two encoders."""
        if self.parts.passage_encoder is None or "question_encoder" not in self.params:
            return None
        tokenizers = self.parts.tokenizers
        rows = trim(tokenizers.passages(passages), tokenizers.passage.pad_token_id, tokenizers.max_passage)
        take = np.minimum(np.arange(power_of_two(len(rows))), len(rows) - 1)
        vectors = encode(self.parts.arch.passage_encoder, self._passage_encoder, rows[take])
        return np.asarray(vectors)[: len(rows)]


def _like(question: str | Sequence[str], results: list[Given]) -> Given | list[Given]:
    """One result for one question, a list for several."""
    return results[0] if isinstance(question, str) else results


def _fields(record: Any) -> dict[str, Any]:
    """A record's fields; unlike `dataclasses.asdict` the records in it stay as they are."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
