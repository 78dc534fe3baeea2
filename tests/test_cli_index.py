import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from rag_jax.cli import app
from rag_jax.index import open_index

LINES = [
    {"id": "a1", "title": "Fox", "text": "The quick brown fox jumps over the lazy dog [red]."},
    {"id": "a2", "title": "Cat", "text": "A cat sleeps in the warm barn."},
    {"id": "a3", "title": "", "text": "Rain falls on the hills of Peru."},
]
MORE = [
    {"id": "a2", "title": "Cat", "text": "A cat hunts mice at midnight."},
    {"id": "a4", "title": "Owl", "text": "An owl hoots at midnight."},
]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["index", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def source(tmp_path):
    return lines(tmp_path / "passages.jsonl", LINES)


def hits(*arguments):
    return json.loads(run("search", *arguments, "--json").stdout)


def test_an_index_of_words_is_built_searched_changed_swapped_and_verified(tmp_path, source):
    index, other = tmp_path / "i", tmp_path / "j"
    assert "3 passages, bm25" in run("build", source, index, "--backend", "bm25").stdout
    (best,) = hits(index, "which fox?", "-k", 2)
    assert best.pop("score") > 0
    assert best == {"id": "a1", "title": "Fox", "text": LINES[0]["text"]}
    assert "[red]" in run("search", index, "fox").stdout
    assert "no passage shares a word" in run("search", index, "zebra").stdout
    more = lines(tmp_path / "more.jsonl", MORE)
    assert "'a2': in the index already" in run("add", index, more, code=1).stderr
    assert "4 in the index" in run("add", index, more, "--replace").stdout
    assert [hit["id"] for hit in hits(index, "midnight")] == ["a4", "a2"]  # the shorter of two first, as BM25 has it
    assert "3 left" in run("delete", index, "a3").stdout
    (tmp_path / "ids.txt").write_text("a4\n")
    assert "2 left" in run("delete", index, "--ids-from", tmp_path / "ids.txt").stdout
    run("build", source, other, "--backend", "bm25")
    assert "3 passages" in run("swap", index, other).stdout
    assert hits(index, "Peru")[0]["id"] == "a3"
    assert run("verify", index).stdout.count("ok ") == 3
    shown = run("info", index).stdout
    assert "bm25" in shown
    assert json.loads(run("info", index, "--json").stdout)["count"] == 3


def test_an_index_of_vectors_remembers_its_weights(tmp_path, source):
    index = tmp_path / "i"
    result = run("build", source, index, "--backend", "device", "--dtype", "int8")
    assert "on disk" in result.stderr
    assert "recall 1.000" in result.stdout
    manifest = open_index(index).manifest
    assert manifest.made_with == {"weights": "world", "max_passage_tokens": 128}
    assert manifest.parameters == {
        "dtype": "int8",
        "recall_target": None,
        "over_retrieve": 1,
        "remainders": False,
    }
    found = hits(index, "Where does rain fall?", "-k", 9)
    assert len(found) == 3
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)
    assert "5 in the index" not in run("add", index, lines(tmp_path / "more.jsonl", MORE), "--replace").stdout
    assert [p.id for p in open_index(index).passages] == ["a1", "a2", "a3", "a4"]
    assert run("verify", index, "--weights", "world").stdout.count("ok ") == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "{}/nothing.tsv", "{}/i"], "nothing.tsv"),
        (["build", "{}/passages.jsonl", "{}/i", "--backend", "faiss"], "choose from bm25, device, exact, scann"),
        (["build", "{}/passages.jsonl", "{}/i", "--dtype", "float16"], "no dtype 'float16'"),
        (["build", "{}/passages.jsonl", "{}/i", "--backend", "exact", "--dtype", "int8"], 'backend "device"'),
        (["build", "{}/passages.jsonl", "{}/i", "--backend", "bm25", "--dtype", "int8"], "no vectors"),
        (["build", "{}/passages.jsonl", "{}/i", "--recall-target", "0.9"], "device backend"),
        (["build", "{}/passages.jsonl", "{}/i", "--embeddings", "{}/nothing"], "nothing"),
        (["build", "{}/passages.jsonl", "{}/i", "--backend", "bm25", "--embeddings", "{}/f"], "bm25 has no vectors"),
        (["build", "{}/passages.jsonl", "{}/i", "--weights", "mars"], "mars: no weights there"),
        (["build", "{}/passages.jsonl", "{}", "--backend", "bm25"], "exists already"),
        (["info", "{}"], "no index there"),
        (["search", "{}", "fox"], "no index there"),
        (["add", "{}", "{}/passages.jsonl"], "no index there"),
        (["delete", "{}", "a1"], "no index there"),
        (["delete", "{}"], "no passage ids"),
        (["swap", "{}/i", "{}"], "no index there"),
        (["verify", "{}"], "no index there"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, source, arguments, message):
    result = run(*(part.format(tmp_path) for part in arguments), code=1)
    assert message in result.stderr
    assert result.stderr.count("rag-jax: ") == 1
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)


def test_embeddings_that_exist_are_imported_for_the_encoder_that_made_them(tmp_path, source):
    run("build", source, tmp_path / "i", "--backend", "exact")
    vectors = open_index(tmp_path / "i").vectors
    pairs = [(line["id"], vector) for line, vector in zip(LINES, np.array(vectors), strict=True)]
    (tmp_path / "f").write_bytes(pickle.dumps(pairs))
    run("build", source, tmp_path / "j", "--backend", "exact", "--embeddings", tmp_path / "f")
    np.testing.assert_array_equal(open_index(tmp_path / "j").vectors, vectors)
    assert hits(tmp_path / "j", "Where does rain fall?") == hits(tmp_path / "i", "Where does rain fall?")
    (tmp_path / "f").write_bytes(pickle.dumps([(id, vector[::-1].copy()) for id, vector in pairs]))
    refused = run("build", source, tmp_path / "k", "--embeddings", tmp_path / "f", code=1)
    assert "give the weights of the encoder" in " ".join(refused.stderr.split())


def test_sizes_are_estimated_before_anything_is_built():
    shown = run("estimate", 21_015_324).stdout
    assert [line.split()[0] for line in shown.splitlines()[-8:]] == ["bm25", *3 * ["device"], "exact", *3 * ["scann"]]
    assert "16.2 GB" in next(line for line in shown.splitlines() if "device" in line and "int8" in line)
    (bm25, *_) = json.loads(run("estimate", 1000, "--dim", 8, "--json").stdout)
    assert bm25["backend"] == "bm25"
    assert bm25["disk"] > bm25["memory"] > 0


HOSTILE = "\x1b[2J\x07 fox [bold red]x[/] :smile: \x9b31m \u202eabc \x7f\r"


def test_no_passage_sends_the_terminal_a_command(tmp_path):
    records = [{"id": f"\x1b[2J\u202e{n}", "title": HOSTILE, "text": HOSTILE * 2} for n in range(2)]
    run("build", lines(tmp_path / "p.jsonl", records), tmp_path / "i", "--backend", "bm25")
    plain, listed = run("search", tmp_path / "i", "fox").output, run("search", tmp_path / "i", "fox", "--json").output
    refused = run("delete", tmp_path / "i", "\x1b[2J", code=1).output
    missing = run("info", tmp_path / "\x1b[2J", code=1).output
    for shown in (plain, listed, refused, missing):
        assert not set(shown) & set("\x1b\x07\x9b\u202e\x7f\r")
        assert "[2J" in shown
    assert "[bold red]x[/] :smile:" in " ".join(plain.split())
    assert [hit["text"] for hit in json.loads(listed)] == [HOSTILE * 2] * 2


def test_a_question_that_is_no_unicode_is_one_clear_error(tmp_path, source):
    run("build", source, tmp_path / "i", "--backend", "exact")
    assert "is not Unicode" in run("search", tmp_path / "i", "caf\udce9", code=1).stderr


def test_a_damaged_index_fails_its_verification(tmp_path, source):
    run("build", source, tmp_path / "i", "--backend", "bm25")
    (tmp_path / "i" / "backend" / "vocab.index.json").write_text("{}")
    assert "rebuild the index" in run("verify", tmp_path / "i", code=1).stderr
