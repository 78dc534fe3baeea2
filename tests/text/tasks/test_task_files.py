"""Every format of the paper's data sets, from files of a few made-up lines, odd ones among them."""

import gzip
import json
import re

import pytest

from rag_jax.text.faults import ReadError
from rag_jax.text.tasks import TASKS, task_passages, task_questions
from rag_jax.text.tasks.fever import LABELS
from rag_jax.types import Passage, Question

QA_CSV = (
    "who keeps the lighthouse\t['Ada', \"Ada's brother\"]\n"
    "\n"
    '"who said ""land ahoy"" first"\t"[""the mate"", \'caf\\xe9 \\u2013 bar\', \'a\\\\b\\tc\']"\n'
    "why\t[]\n"
)
DPR_JSON = json.dumps(
    [
        {
            "question": "who keeps the lighthouse",
            "answers": ["Ada"],
            "positive_ctxs": [
                {"title": "Keeper", "text": "x", "passage_id": 7},
                {"text": "y", "psg_id": "8"},
                {"a": 1},
            ],
            "hard_negative_ctxs": [{"title": "no", "text": "no", "passage_id": "9"}],
        },
        {"question": "[why]?", "answers": [], "positive_ctxs": []},
    ],
    indent=4,
)
TRIVIA = {
    "Data": [
        {"Question": "Who?", "QuestionId": "tc_1", "Answer": {"Value": "Ada", "Aliases": ["ADA", "Ada", "A."]}},
        {"Question": "Hidden?", "QuestionId": "tc_2"},
    ],
    "Version": 1.0,
}
WEB = [
    {"url": "u", "targetValue": '(list (description "Ada \\"A\\" Lee") (description Peru))', "utterance": "who?"},
    {"url": "u", "targetValue": "(list)", "utterance": "why?"},
]
MARCO = {
    "answers": {"0": ["a lamp"], "7": ["No Answer Present."], "8": ["x"]},
    "passages": {
        "0": [
            {"is_selected": 0, "passage_text": "No lamp.", "url": "http://one"},
            {"is_selected": 1, "passage_text": "A lamp."},
        ],
        "7": [],
        "8": [],
    },
    "query": {"0": "what is lit", "7": "what is not", "8": "what else"},
    "query_id": {"0": 12, "7": 13, "8": 14},
    "wellFormedAnswers": {"0": ["A lamp is lit.", "It is a lamp."], "7": "[]", "8": []},
}
SYMMETRIC = [
    {"id": "5", "claim": "The lamp is lit .", "evidence": "It burns .", "gold_label": "SUPPORTS", "label": "SUPPORTS"},
    {"id": "50000002", "claim": "The lamp is lit .", "evidence": "It is dark .", "gold_label": "REFUTES"},
    {"id": 6, "claim": "The lamp is out .", "evidence_sentence": "It burns .", "label": "REFUTES"},
]
CLUE = {"category": "LAMPS", "question": "'It''s lit by the keeper'", "answer": "the keeper\\'s lamp", "value": None}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def write(tmp_path, name, content):
    path = tmp_path / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


OPEN = (Question("0", "who?", ("Ada", "A.")), Question("1", "why?", ()))


@pytest.mark.parametrize(
    ("dataset", "name", "content", "expected"),
    [
        (
            "natural_questions",
            "nq-test.qa.csv",
            QA_CSV,
            (
                Question("0", "who keeps the lighthouse", ("Ada", "Ada's brother")),
                Question("1", 'who said "land ahoy" first', ("the mate", "café – bar", "a\\b\tc")),
                Question("2", "why", ()),
            ),
        ),
        (
            "natural_questions",
            "NQ-open.dev.jsonl",
            lines({"question": "who?", "answer": ["Ada", "A."]}, {"question": "why?", "answer": []}),
            OPEN,
        ),
        (
            "natural_questions",
            "biencoder-nq-dev.json.gz",
            DPR_JSON,
            (Question("0", "who keeps the lighthouse", ("Ada",), ("7", "8")), Question("1", "[why]?", ())),
        ),
        (
            "trivia_qa",
            "unfiltered-web-dev.json",
            json.dumps(TRIVIA),
            (Question("tc_1", "Who?", ("Ada", "ADA", "A.")), Question("tc_2", "Hidden?", ())),
        ),
        (
            "trivia_qa",
            "biencoder-trivia-dev.json",
            "\n" + DPR_JSON,
            (Question("0", "who keeps the lighthouse", ("Ada",), ("7", "8")), Question("1", "[why]?", ())),
        ),
        (
            "web_questions",
            "webquestions.examples.test.json",
            json.dumps(WEB),
            (Question("0", "who?", ('Ada "A" Lee', "Peru")), Question("1", "why?", ())),
        ),
        (
            "web_questions",
            "test.json",
            json.dumps([{"qId": "wqs0", "answers": ["Ada", "A."], "qText": "who?"}]),
            (Question("wqs0", "who?", ("Ada", "A.")),),
        ),
        (
            "curated_trec",
            "large2470-test.tsv",
            '12\tfactoid\tWho lit "the lamp"?\tAda|(the )?keeper\r\n\n9\tfactoid\tHow far?\t\\b5\\s?km\n',
            (
                Question("12", 'Who lit "the lamp"?', ("Ada|(the )?keeper",)),
                Question("9", "How far?", ("\\b5\\s?km",)),
            ),
        ),
        (
            "ms_marco",
            "dev_v2.1.json.gz",
            json.dumps(MARCO),
            (Question("12", "what is lit", ("A lamp is lit.", "It is a lamp."), ("12-1",)),),
        ),
        (
            "ms_marco",
            "eval_v2.1_public.json",
            json.dumps({name: MARCO[name] for name in ("query", "query_id")}),
            (Question("12", "what is lit"), Question("13", "what is not"), Question("14", "what else")),
        ),
        (
            "jeopardy",
            "clues.json",
            json.dumps([CLUE]),
            (Question("0", "the keeper's lamp", ("It''s lit by the keeper",)),),
        ),
        (
            "fever",
            "train.jsonl",
            lines(
                {"id": 75, "verifiable": "VERIFIABLE", "label": "SUPPORTS", "claim": "It burns.", "evidence": [[[1]]]},
                {"id": 76, "label": "NOT ENOUGH INFO", "claim": "It may burn.", "evidence": []},
                {"id": 77, "claim": "It will burn."},
            ),
            (
                Question("75", "It burns.", ("SUPPORTS",)),
                Question("76", "It may burn.", ("NOT ENOUGH INFO",)),
                Question("77", "It will burn."),
            ),
        ),
    ],
)
def test_a_file_of_its_authors_gives_its_questions(tmp_path, dataset, name, content, expected):
    assert task_questions(dataset, write(tmp_path, name, content)) == expected


def test_claims_of_fever_symmetric_know_their_evidence(tmp_path):
    path = write(tmp_path, "fever_symmetric_dev.jsonl", lines(*SYMMETRIC))
    passages = task_passages("fever_symmetric", [path, path])
    assert [passage.text for passage in passages] == ["It burns .", "It is dark ."]
    burns, dark = (passage.id for passage in passages)
    assert task_questions("fever_symmetric", path) == (
        Question("5", "The lamp is lit .", ("SUPPORTS",), (burns,)),
        Question("50000002", "The lamp is lit .", ("REFUTES",), (dark,)),
        Question("6", "The lamp is out .", ("REFUTES",), (burns,)),
    )


def test_passages_of_ms_marco_are_those_that_its_questions_point_at(tmp_path):
    path = write(tmp_path, "dev_v2.1.json", json.dumps(MARCO))
    assert task_passages("ms_marco", [path]) == [
        Passage("12-0", "http://one", "No lamp."),
        Passage("12-1", "", "A lamp."),
    ]
    assert task_passages("fever", [path]) == []


def test_a_folder_of_clues_is_read_by_the_names_of_its_files(tmp_path):
    for name in ("000010", "000002"):
        write(tmp_path, f"{name}.json", json.dumps(CLUE | {"answer": name, "search_results": []}))
    assert [(q.id, q.text) for q in task_questions("jeopardy", tmp_path)] == [("000002",) * 2, ("000010",) * 2]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match=r"no \.json file in this folder"):
        task_questions("jeopardy", tmp_path / "empty")


def test_labels_become_words_and_two_words_make_fever_two_way(tmp_path):
    claims = [{"id": n, "label": label, "claim": f"claim {n}"} for n, label in enumerate(LABELS)]
    path = write(tmp_path, "dev.jsonl", lines(*claims))
    three = task_questions("fever", path, words=("yes", "no", "maybe"))
    assert [question.answers for question in three] == [("yes",), ("no",), ("maybe",)]
    two = task_questions("fever", path, words=("yes", "no"))
    assert [(question.id, question.answers) for question in two] == [("0", ("yes",)), ("1", ("no",))]
    with pytest.raises(ValueError, match=r"config\.data\.labels: 4 words .* its labels are SUPPORTS, REFUTES"):
        task_questions("fever", path, words=("a", "b", "c", "d"))
    with pytest.raises(ValueError, match=r"config\.data\.labels: .* but its answers are texts"):
        task_questions("natural_questions", path, words=("a", "b"))


GOOD = {"question": "who?", "answer": ["Ada"]}
CLAIM = {"id": 1, "label": "SUPPORTS", "claim": "It burns."}
WEB_ROW = {"qId": "1", "qText": "who?", "answers": []}


@pytest.mark.parametrize(
    ("dataset", "name", "content", "what"),
    [
        ("natural_questions", "q.csv", "who\t['a']\nwhy\n", "line 2: 1 column(s)"),
        ("natural_questions", "q.csv", "who\t['a'\t'b']\n", "line 1: 3 column(s)"),
        ("natural_questions", "q.csv", " \t['a']\n", "line 1: the question is empty"),
        ("natural_questions", "q.csv", "who\tAda\n", "line 1: the answers must be a list such as"),
        ("natural_questions", "q.csv", "who\t['a', 1]\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t['a' 'b']\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t['a', , 'b']\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t['a'] + ['b']\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t['\\q']\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t['\\ud800']\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "who\t[__import__('os')]\n", "line 1: the answers must be a list"),
        ("natural_questions", "q.csv", "", "an empty question file"),
        ("natural_questions", "q.csv", b"caf\xe9\t['a']\n", "line 1: not UTF-8"),
        ("natural_questions", "q.txt", "", "are read from .csv or .jsonl or .json"),
        ("natural_questions", "q.jsonl", lines(GOOD, GOOD | {"answer": "Ada"}), "line 2: 'answer' must be a list"),
        ("natural_questions", "q.jsonl", lines(GOOD, {"question": "who?"}), "line 2: missing field 'answer'"),
        ("natural_questions", "q.json", '[\n{"question": "a", "answers": [],\n]', "line 3: broken JSON"),
        ("natural_questions", "q.json", "[]", "an empty question file"),
        ("natural_questions", "q.json", "[\n[1]]", "line 2: not a JSON object"),
        ("natural_questions", "q.json", '[{"question": "a", "answers": []}\n{}]', "line 2: broken JSON (no comma"),
        ("natural_questions", "q.json", '[{"question": "a", "answers": []}]\n{}', "line 2: text after the end"),
        ("natural_questions", "q.json", '[{"question": "a", "answers": []},\n', "broken JSON"),
        ("natural_questions", "q.json", '{"a": 1}', "line 1: not a JSON array"),
        ("natural_questions", "q.json", '[{"question": "a", "answers": [], "positive_ctxs": 1}]', "list of objects"),
        ("trivia_qa", "q.json", "{}", "missing field 'Data'"),
        ("trivia_qa", "q.json", json.dumps({"Data": [{"Question": "?"}]}), "Data[0]: missing field 'QuestionId'"),
        ("trivia_qa", "q.json", '{\n"Data": [\n}', "line 3: broken JSON"),
        ("web_questions", "q.json", json.dumps([WEB[0] | {"targetValue": "(list Peru)"}]), "'targetValue' must be"),
        ("web_questions", "q.json", json.dumps([WEB_ROW, WEB_ROW]), "the id '1' came before"),
        ("curated_trec", "q.tsv", "1\tfactoid\twho\n", "line 1: 3 column(s)"),
        ("curated_trec", "q.tsv", "1\tfactoid\twho\t\n", "line 1: the id, the question or the regex is empty"),
        ("curated_trec", "q.tsv", "1\tfactoid\twho\t(Ada\n", "line 1: the answer '(Ada' is no regex"),
        ("curated_trec", "q.csv", "who\t['a', 'b)']\n", "line 1: the answer 'b)' is no regex"),
        ("ms_marco", "q.json", "[]", "not a JSON object"),
        ("ms_marco", "q.json", json.dumps({"query": {}}), "missing field 'query_id'"),
        ("ms_marco", "q.json", json.dumps(MARCO | {"query": []}), "'query' must be an object of row number"),
        ("ms_marco", "q.json", json.dumps(MARCO | {"query": {"0": "a"}}), "row '7' is missing from column 'query'"),
        ("ms_marco", "q.json", json.dumps(MARCO | {"wellFormedAnswers": {"0": 3, "7": "[]", "8": "[]"}}), "row '0': "),
        ("jeopardy", "q.json", json.dumps([CLUE | {"answer": " "}]), "the answer is empty"),
        ("fever", "q.jsonl", lines(CLAIM, CLAIM), "line 2: the id '1' came before"),
        ("fever", "q.jsonl", lines(CLAIM | {"label": "TRUE"}), "line 1: 'label' must be one of SUPPORTS"),
        ("fever", "q.jsonl", lines({"id": 1, "label": "SUPPORTS"}), "line 1: missing field 'claim'"),
        ("fever_symmetric", "q.jsonl", lines(CLAIM), "line 1: missing field 'evidence_sentence'"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path, dataset, name, content, what):
    path = write(tmp_path, name, content)
    with pytest.raises(ReadError, match=re.escape(what)) as error:
        task_questions(dataset, path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("dataset", TASKS)
def test_a_file_that_is_not_there_is_named(tmp_path, dataset):
    with pytest.raises(FileNotFoundError, match="no such file or folder; check the path"):
        task_questions(dataset, tmp_path / "none.jsonl")
