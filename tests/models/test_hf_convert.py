"""`rag-jax convert`: weights in, weights out, and what a user reads when it cannot be done."""

import json
import pathlib

import jax
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file
from typer.testing import CliRunner

from rag_jax.cli import app
from rag_jax.models import hf
from rag_jax.models.bart import Bart
from rag_jax.models.bert import Bert
from rag_jax.models.hf_config import same_sizes
from rag_jax.models.hf_convert import read_bundle
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS
from rag_jax.models.weights import save_params
from rag_jax.text.tokens import train_tokenizer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "rag_small"


def convert(*args, fails=False):
    result = CliRunner().invoke(app, ["convert", *map(str, args)])
    assert (result.exit_code != 0) == fails, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def same_files(one, other, name="model.safetensors"):
    one, other = load_file(one / name), load_file(other / name)
    assert one.keys() == other.keys()
    return all(np.array_equal(one[key].view(np.uint32), other[key].view(np.uint32)) for key in one)


def test_into_a_weights_directory_and_back_is_bit_equal(tmp_path):
    said = convert(GOLDEN, tmp_path / "ours")
    assert "RAG-Token" in said
    assert "generator: " in said
    described = json.loads((tmp_path / "ours" / "model.json").read_text())
    assert described["variant"] == "token"
    assert described["sizes"]["generator"]["width"] == hf.load_rag(GOLDEN).generator.width
    convert(tmp_path / "ours", tmp_path / "back", "--to", "rag")
    assert same_files(GOLDEN, tmp_path / "back")
    before, after = (json.loads((place / "config.json").read_text()) for place in (GOLDEN, tmp_path / "back"))
    assert {name: after[name] for name in before if name not in ("generator", "question_encoder")} == {
        name: before[name] for name in before if name not in ("generator", "question_encoder")
    }


def test_a_null_document_does_not_go_in_silence(tmp_path):
    assert "left behind" not in convert(GOLDEN, tmp_path / "ours")
    save_params(tmp_path / "ours" / "null_document.safetensors", {"embedding": np.ones(4, np.float32)})
    assert "null_document: left behind" in convert(tmp_path / "ours", tmp_path / "back", "--to", "rag")


def test_the_other_variant_needs_force_on_every_way(tmp_path):
    assert "trained as RAG-Token" in convert(GOLDEN, tmp_path / "x", "--variant", "sequence", fails=True)
    assert not (tmp_path / "x").exists()
    convert(GOLDEN, tmp_path / "ours")
    assert "trained as RAG-Token" in convert(
        tmp_path / "ours", tmp_path / "x", "--to", "rag", "--variant", "sequence", fails=True
    )
    convert(tmp_path / "ours", tmp_path / "x", "--to", "rag", "--variant", "sequence", "--force")
    assert hf.load_rag(tmp_path / "x").variant == "sequence"


def test_a_rag_is_put_together_from_its_parts(tmp_path):
    convert(GOLDEN, tmp_path / "question", "--to", "dpr-question")
    convert(GOLDEN, tmp_path / "bart", "--to", "bart", "--format", "bin", "--max-shard-mb", 1)
    convert(GOLDEN, tmp_path / "bert", "--to", "bert")
    convert(tmp_path / "bert", tmp_path / "towers")
    convert(tmp_path / "towers", tmp_path / "context", "--to", "dpr-context")
    assert {name.split(".")[0] for name in load_file(tmp_path / "context" / "model.safetensors")} == {"ctx_encoder"}
    convert(
        tmp_path / "question",
        tmp_path / "whole",
        "--passage-encoder",
        tmp_path / "context",
        "--generator",
        tmp_path / "bart",
    )
    assert set(read_bundle(tmp_path / "whole").parts) == {"question_encoder", "passage_encoder", "generator"}
    assert "say which variant" in convert(tmp_path / "whole", tmp_path / "rag", "--to", "rag", fails=True)
    convert(tmp_path / "whole", tmp_path / "rag", "--to", "rag", "--variant", "token")
    assert same_files(GOLDEN, tmp_path / "rag")


def test_a_dpr_encoder_is_the_tower_that_its_class_names(tmp_path):
    whole = hf.load_rag(GOLDEN)
    for layout, part in (("dpr_question", "question_encoder"), ("dpr_context", "passage_encoder")):
        hf.save_bert(tmp_path / layout, whole.question_encoder, whole.params["question_encoder"], layout=layout)
        assert set(read_bundle(tmp_path / layout).parts) == {part}
    assert "needs a generator" in convert(tmp_path / "dpr_question", tmp_path / "x", "--to", "bart", fails=True)


def test_tokenizer_files_travel_with_their_part(tmp_path):
    convert(GOLDEN, tmp_path / "bart", "--to", "bart")
    (tmp_path / "bart" / "vocab.json").write_text("{}")
    (tmp_path / "bart" / "merges.txt").write_text("#")
    convert(tmp_path / "bart", tmp_path / "ours")
    assert {path.name for path in (tmp_path / "ours" / "generator_tokenizer").iterdir()} == {"vocab.json", "merges.txt"}
    convert(GOLDEN, tmp_path / "rag", "--generator", tmp_path / "bart", "--to", "rag")
    assert (tmp_path / "rag" / "generator_tokenizer" / "merges.txt").read_text() == "#"
    convert(tmp_path / "rag", tmp_path / "again")
    convert(tmp_path / "again", tmp_path / "out", "--to", "bart")
    assert (tmp_path / "out" / "vocab.json").read_text() == "{}"


def test_a_bare_tokenizer_is_completed_for_transformers(tmp_path):
    tokenizer = train_tokenizer(["the capital of France is Paris", "who leads Peru"], 300)
    convert(GOLDEN, tmp_path / "ours")
    tokenizer.backend_tokenizer.save(str(tmp_path / "ours" / "tokenizer.json"))
    convert(tmp_path / "ours", tmp_path / "rag", "--to", "rag")
    for part in ("question_encoder", "generator"):
        again = transformers.AutoTokenizer.from_pretrained(tmp_path / "rag", subfolder=f"{part}_tokenizer")
        assert again("capital of Peru")["input_ids"] == tokenizer("capital of Peru")["input_ids"]
        for role in ("bos", "eos", "pad", "cls", "sep", "unk", "mask"):
            assert getattr(again, f"{role}_token_id") == getattr(tokenizer, f"{role}_token_id")


def test_what_cannot_be_done_is_said_in_a_line(tmp_path):
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps({"model_type": "t5"}))
    assert "model_type is 't5'" in convert(tmp_path / "t5", tmp_path / "x", fails=True)
    assert "not there" in convert(tmp_path / "nowhere", tmp_path / "x", fails=True)
    assert "not empty" in convert(GOLDEN, tmp_path, fails=True)
    assert "choose one of" in convert(GOLDEN, tmp_path / "x", "--to", "onnx", fails=True)
    assert "choose one of" in convert(GOLDEN, tmp_path / "x", "--to", "rag", "--format", "h5", fails=True)
    assert not (tmp_path / "x").exists()


def test_a_weights_directory_of_other_sizes_is_refused(tmp_path):
    convert(GOLDEN, tmp_path / "ours")
    described = json.loads((tmp_path / "ours" / "model.json").read_text())
    described["sizes"]["generator"]["vocab_size"] += 3
    (tmp_path / "ours" / "model.json").write_text(json.dumps(described))
    assert "tokens/embedding is" in convert(tmp_path / "ours", tmp_path / "x", "--to", "bart", fails=True)


def test_a_directory_that_names_only_presets_is_read(tmp_path):
    sizes = {"question_encoder": BERT_PRESETS["tiny"], "generator": BART_PRESETS["tiny"]}
    towers = {"question_encoder": Bert(sizes["question_encoder"]), "generator": Bart(sizes["generator"])}
    ids = jax.numpy.ones((1, 4), int)
    for name, model in towers.items():
        inputs = (ids,) if name == "question_encoder" else (ids, ids > 0, ids)
        shapes = jax.eval_shape(lambda key, model=model, inputs=inputs: model.init(key, *inputs), jax.random.key(0))
        params = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.5, np.float32), shapes["params"])
        save_params(tmp_path / "run" / f"{name}.safetensors", params, "float16")
    (tmp_path / "run" / "model.json").write_text(json.dumps({"presets": dict.fromkeys(sizes, "tiny")}))
    convert(tmp_path / "run", tmp_path / "rag", "--to", "rag", "--variant", "token")
    rag = hf.load_rag(tmp_path / "rag")
    assert same_sizes(rag.generator, sizes["generator"])
    assert same_sizes(rag.question_encoder, sizes["question_encoder"])
    convert(tmp_path / "rag", tmp_path / "again")
    described = json.loads((tmp_path / "again" / "model.json").read_text())
    assert described["presets"] == dict.fromkeys(sizes, "tiny")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_a_choice_on_the_way_out(tmp_path, dtype):
    convert(GOLDEN, tmp_path / "half", "--to", "rag", "--dtype", dtype)
    rag = hf.load_rag(tmp_path / "half")
    assert {extras.dtype for extras in rag.extras.values()} == {dtype}
    exact = hf.load_rag(GOLDEN).params["generator"]["tokens"]["embedding"]
    rounded = exact.astype(np.float16 if dtype == "float16" else jax.numpy.bfloat16).astype(np.float32)
    assert np.array_equal(rag.params["generator"]["tokens"]["embedding"], rounded)
