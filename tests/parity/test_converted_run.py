"""A RAG and a DPR context encoder of Hugging Face, converted, trained and asked: from torch's files to an answer."""

import json

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

from rag_jax import config as rag_config
from rag_jax.cli import app
from rag_jax.experiment import answer_questions, load_parts, make_retriever
from rag_jax.rag.retrieve import HfCompatRetriever, Hits
from rag_jax.training.loop import train
from rag_jax.training.metrics import read_metrics
from rag_jax.training.recipes import run_recipe
from rag_jax.types import Question
from tests.parity.peer import scatter
from tests.small_tokenizers import TEXTS, write_bpe, write_wordpiece

TITLES = ["Iliad", '"Odyssey"', "France"]
QUESTIONS = ["Who wrote the ILIAD?", "Capital of France?"]


class Peer:
    """The models at Hugging Face, and the directory of weights that `rag-jax convert` made of them."""

    def __init__(self, directory):
        torch.manual_seed(0)
        towers = {"vocab_size": 120, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        towers |= {"intermediate_size": 8, "max_position_embeddings": 40, "initializer_range": 0.3}
        sides = {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
        sides |= {name.replace("encoder", "decoder"): value for name, value in sides.items()}
        generator = transformers.BartConfig(
            vocab_size=320, d_model=8, max_position_embeddings=96, init_std=0.3, **sides
        )
        tower = transformers.DPRConfig(**towers)
        config = transformers.RagConfig.from_question_encoder_generator_configs(tower, generator)
        self.rag = scatter(transformers.RagTokenForGeneration(config))
        self.context = scatter(transformers.DPRContextEncoder(tower))
        self.rag.save_pretrained(directory / "rag")
        self.context.save_pretrained(directory / "context")
        write_wordpiece(directory / "rag" / "question_encoder_tokenizer")
        write_bpe(directory / "rag" / "generator_tokenizer")
        vocabulary = write_wordpiece(directory / "vocabulary") / "vocab.txt"
        vocabulary.rename(directory / "context" / "vocab.txt")
        self.weights, self.alone, self.directory = directory / "weights", directory / "alone", directory
        convert(directory / "rag", self.alone)
        convert(directory / "rag", self.weights, "--passage-encoder", directory / "context")
        rows = [{"id": str(i), "title": t, "text": text} for i, (t, text) in enumerate(zip(TITLES, TEXTS, strict=True))]
        write_lines(directory / "passages.jsonl", rows)
        write_lines(directory / "questions.jsonl", [{"id": q, "question": q, "answers": ["Homer"]} for q in QUESTIONS])

    def settings(self, **values):
        """A final configuration of one step from the converted weights."""
        defaults = {
            "variant": "token",
            "k": 2,
            "data.dataset": "files",
            "data.passages_path": str(self.directory / "passages.jsonl"),
            "data.questions_path": str(self.directory / "questions.jsonl"),
            "data.eval_questions_path": str(self.directory / "questions.jsonl"),
            "data.max_passage_tokens": 40,
            "data.max_source_tokens": 64,
            "data.max_target_tokens": 6,
            "model.init_from": str(self.weights),
            "model.dropout": 0.0,
            "index.backend": "exact",
            "optimizer.warmup_steps": 0,
            "train.batch_size": 2,
            "train.steps": 1,
            "train.checkpoint_every": 1,
            "eval.batch_size": 2,
        }
        named = {name.replace("__", "."): value for name, value in values.items()}
        return rag_config.finalise(rag_config.update(rag_config.Config(), defaults | named))

    def priors(self):
        """p(z|x) of the two best passages, by torch: [questions, 2]."""
        tower = transformers.BertTokenizer.from_pretrained(self.directory / "rag" / "question_encoder_tokenizer")
        with torch.no_grad():
            asked = tower(QUESTIONS, return_tensors="pt", padding=True)
            query = self.rag.rag.question_encoder(asked["input_ids"], attention_mask=asked["attention_mask"])[0]
            read = tower(TITLES, TEXTS, return_tensors="pt", padding=True, truncation=True, max_length=40)
            vectors = self.context(read["input_ids"], attention_mask=read["attention_mask"])[0]
        return torch.softmax((query @ vectors.T).sort(descending=True).values[:, :2], -1).numpy()


def convert(*args):
    result = CliRunner().invoke(app, ["convert", *map(str, args)])
    assert result.exit_code == 0, result.output


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    return Peer(tmp_path_factory.mktemp("peer"))


@pytest.mark.slow
@pytest.mark.parametrize("joined_there", [False, True])
def test_converted_weights_train_and_answer(peer, tmp_path, joined_there):
    config = peer.settings(data__hf_compat_input=joined_there)
    parts = load_parts(config)
    retriever = make_retriever(config, parts, tmp_path, config.k)
    assert isinstance(retriever, HfCompatRetriever) == joined_there
    before = answer_questions(config, parts, parts.params, retriever, [Question(q, q) for q in QUESTIONS])
    ours = [[source.prior for source in one.sources] for one in before]
    np.testing.assert_allclose(ours, peer.priors(), atol=1e-5)
    trained = train(config, tmp_path, parts)
    for part in ("question_encoder", "generator"):
        names = ("tokens", "embedding")
        start, end = (np.asarray(tree[part][names[0]][names[1]]) for tree in (load_parts(config).params, trained))
        assert np.isfinite(end).all()
        assert not np.array_equal(start, end)
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert np.isfinite(line["loss"])


def test_the_generator_of_joined_texts_reads_what_rag_retriever_makes(peer, tmp_path):
    config = peer.settings(data__hf_compat_input=True)
    parts = load_parts(config)
    retriever = make_retriever(config, parts, tmp_path, config.k)
    asked = parts.tokenizers.questions(QUESTIONS)
    batch = retriever.batch(Hits(np.array([[1, 0], [2, -1]])), asked, parts.tokenizers.source_questions(QUESTIONS))
    assert batch.source_question.shape == (2, 0)
    text = parts.tokenizers.source.decode(batch.passages[0, 0], skip_special_tokens=True)
    assert text == f"Odyssey / {TEXTS[1]} // who wrote the iliad?"
    assert batch.valid.tolist() == [[True, True], [True, False]]


def test_a_converted_rag_alone_ends_in_one_message(peer, tmp_path, capsys):
    assert run_recipe(peer.settings(model__init_from=str(peer.alone)), tmp_path) == 1
    assert "--passage-encoder" in capsys.readouterr().err
    assert run_recipe(peer.settings(variant="sequence"), tmp_path) == 1
    assert "trained as RAG-Token" in capsys.readouterr().err
    with pytest.raises(rag_config.ConfigError, match="closed book has no passage"):
        peer.settings(data__hf_compat_input=True, retriever="none")
