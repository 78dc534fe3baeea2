import collections
import difflib
import re
import subprocess
import sys

import numpy as np
import pytest

from rag_jax.text import world_facts as world
from rag_jax.text.world_facts import facts, passages, questions, relations

edition = pytest.mark.parametrize("edition", world.EDITIONS)


@edition
def test_an_edition_has_about_seven_thousand_facts_on_250_countries(edition):
    table = world.load_facts(edition)
    assert 6_900 < len(table) < 7_300
    assert 245 < len({fact.country for fact in table}) < 256
    assert len({fact[:2] for fact in table}) == len(table), "one value for each relation of a country"
    assert {fact.relation for fact in table} <= set(world.RELATIONS)


@edition
def test_no_value_is_malformed(edition):
    for fact in world.load_facts(edition):
        assert fact.value == " ".join(fact.value.split())
        assert not re.search(r"unnamed|NEGL|\[|lowest point:", fact.value), fact
        assert not re.search(r"[A-Z]{4,}|Dr\.|Gen\.", fact.value), fact


def test_an_unknown_edition_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no edition '2024'.*2016, 2020"):
        world.load_facts("2024")


def test_every_relation_has_three_statements_and_two_questions():
    assert len(world.RELATIONS) == 33
    for relation in world.RELATIONS.values():
        assert len(set(relation.statements)) >= 3
        assert len(set(relation.questions)) >= 2
        assert relation.section in world.SECTIONS
        for statement in relation.statements:
            assert statement.count("{country}") == statement.count("{value}") == 1
            assert statement.endswith(".")
            assert not statement.startswith("{value}")
            assert 8 <= len(statement.split()) <= 15
        for question in relation.questions:
            words = question.replace("{country}", "")
            assert words == words.lower()
            assert "?" not in question
            assert "{value}" not in question


def test_the_phrasings_of_a_relation_differ_in_word_order():
    for relation in world.RELATIONS.values():
        countries_at = [statement.index("{country}") for statement in relation.statements]
        values_at = [statement.index("{value}") for statement in relation.statements]
        assert len(set(zip(countries_at, values_at, strict=True))) == len(relation.statements)


def test_sections_hold_three_to_five_relations():
    sizes = collections.Counter(relation.section for relation in world.RELATIONS.values())
    assert set(sizes) == set(world.SECTIONS)
    assert set(sizes.values()) <= {3, 4, 5}


@pytest.mark.parametrize(
    ("country", "inside"),
    [
        ("Kenya", "Kenya"),
        ("Bahamas", "the Bahamas"),
        ("United States", "the United States"),
        ("Holy See", "the Holy See"),
        ("Cook Islands", "the Cook Islands"),
        ("Heard Island and McDonald Islands", "Heard Island and McDonald Islands"),
    ],
)
def test_countries_take_an_article_where_english_wants_one(country, inside):
    assert world.in_sentence(country) == inside


def test_values_take_the_article_of_their_kind():
    government = world.RELATIONS["government type"]
    assert "is an absolute monarchy" in relations.state(government, 0, "Oman", "absolute monarchy")
    assert "is a unitary republic" in relations.state(government, 0, "Oman", "unitary republic")
    border = world.RELATIONS["longest border"]
    assert "with the United States on" in relations.state(border, 2, "Canada", "United States")
    assert relations.state(border, 0, "Bahamas", "Haiti").startswith("The longest land border of the Bahamas is")


@edition
def test_passages_have_40_to_100_words(edition):
    lengths = [len(entry.passage.text.split()) for entry in world.world_passages(edition)]
    assert 1_600 < len(lengths) < 2_000
    assert min(lengths) >= 40
    assert max(lengths) <= 100
    assert np.mean(np.array(lengths) <= 60) > 0.7


@edition
def test_every_fact_is_stated_in_exactly_one_passage_verbatim(edition):
    stated = collections.Counter()
    by_country_relation = {}
    for entry in world.world_passages(edition):
        for relation in entry.relations:
            stated[entry.country, relation] += 1
            by_country_relation[entry.country, relation] = entry.passage
    assert set(stated.values()) == {1}
    assert set(stated) == {fact[:2] for fact in world.load_facts(edition)}
    for fact in world.load_facts(edition):
        assert fact.value in by_country_relation[fact.country, fact.relation].text


@edition
def test_the_country_stands_in_the_first_sentence_and_in_the_title(edition):
    for entry in world.world_passages(edition):
        assert entry.passage.title.startswith(f"{entry.country}: ")
        assert entry.country in entry.passage.text[:150]


@edition
def test_ids_are_unique_and_name_their_edition(edition):
    ids = [entry.passage.id for entry in world.world_passages(edition)]
    assert ids == [f"{edition}-{n:04d}" for n in range(1, len(ids) + 1)]
    question_ids = [entry.question.id for entry in world.world_questions(edition)]
    assert len(set(question_ids)) == len(question_ids)


def test_passages_are_the_same_in_another_process():
    program = (
        "import hashlib; from rag_jax.text.world_facts import *; "
        "print(hashlib.sha256(repr((world_passages('2020'), leader_questions('2016'))).encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_invented_facts_are_composed_like_real_ones():
    rng = np.random.default_rng(0)
    made_up = [world.Fact("", "capital", "Zumbak"), world.Fact("", "currency", "Ostrian crowns")]
    (entry,) = world.compose("Ostria", made_up, rng, iter(["a"]))
    assert entry.passage.id == "a"
    assert set(entry.relations) == {"capital", "currency"}
    assert "Zumbak" in entry.passage.text
    assert "Ostrian crowns" in entry.passage.text
    assert 40 <= len(entry.passage.text.split()) <= 100


def test_a_passage_over_100_words_is_refused():
    long = [world.Fact("", "capital", "very " * 120 + "long")]
    with pytest.raises(ValueError, match=r"Ostria.*over 100"):
        world.compose("Ostria", long, np.random.default_rng(0))


def test_neutral_sentences_hold_no_answer():
    padding = " ".join(passages._NEUTRAL)
    values = {fact.value for fact in world.load_facts("2020")} - {"Oman"}  # "Romania" is not in the padding
    assert not [value for value in values if re.search(rf"\b{re.escape(value)}\b", padding)]


@edition
def test_every_fact_is_asked_once_and_its_positive_passage_holds_the_answer(edition):
    texts = {entry.passage.id: entry.passage.text for entry in world.world_passages(edition)}
    asked = world.world_questions(edition)
    for entry, fact in zip(asked, world.load_facts(edition), strict=True):
        assert (entry.country, entry.relation, entry.question.answers[0]) == fact
        (positive,) = entry.question.positive_ids
        assert entry.question.answers[0] in texts[positive]
        assert entry.country in entry.question.text


def test_accepted_answers_spell_out_units_and_short_names():
    assert "580,367 square kilometers" in questions.accepted_answers(world.Fact("Kenya", "area", "580,367 sq km"))
    assert "US" in questions.accepted_answers(world.Fact("Canada", "longest border", "United States"))
    assert "Donald Trump" in questions.accepted_answers(world.Fact("Guam", "chief of state", "Donald J. Trump"))


@edition
def test_splits_are_disjoint_cover_all_and_have_their_shares(edition):
    parts = {split: world.countries(edition, split) for split in world.SPLITS}
    assert sorted(sum(parts.values(), ())) == list(world.countries(edition))
    total = len(world.countries(edition))
    for split, share in (("train", 0.68), ("validation", 0.12), ("test", 0.20)):
        assert abs(len(parts[split]) / total - share) < 0.03
    assert len(world.world_questions(edition)) == sum(len(world.world_questions(edition, s)) for s in world.SPLITS)


def test_a_country_is_in_the_same_split_in_both_editions_even_when_renamed():
    assert world.split_of("Macedonia") == world.split_of("North Macedonia")
    assert world.split_of("Swaziland") == world.split_of("Eswatini")
    for split in world.SPLITS:
        for country in set(world.countries("2016")) & set(world.countries("2020")):
            assert (country in world.countries("2016", split)) == (country in world.countries("2020", split))


def test_about_250_leaders_changed_and_none_only_in_spelling():
    changed = world.changed_leaders()
    count = collections.Counter(entry.relation for entry in changed)
    assert 140 <= count["head of government"] <= 160
    assert 85 <= count["chief of state"] <= 110
    for entry in changed:
        old, new = facts.normalize(entry.value_2016), facts.normalize(entry.value_2020)
        similarity = difflib.SequenceMatcher(None, old, new).ratio()
        # Father and son, or brothers, share the longest part of their names.
        related = entry.country in ("Bahrain", "Kuwait", "Mauritius")
        assert similarity < 0.75 or related, entry
    found = {entry[:2] for entry in changed}
    assert ("United States", "chief of state") in found
    assert ("Cyprus", "chief of state") not in found, "Anastasiades is Anastasiadis"


def test_leader_questions_differ_between_editions_in_truth_alone():
    before, after = world.leader_questions("2016"), world.leader_questions("2020")
    assert len(before) == len(after) == len(world.changed_leaders())
    for old, new in zip(before, after, strict=True):
        assert (old.question.id, old.question.text) == (new.question.id, new.question.text)
        assert not set(map(facts.normalize, old.question.answers)) & set(map(facts.normalize, new.question.answers))
        assert old.question.positive_ids[0].startswith("2016-")
        assert new.question.positive_ids[0].startswith("2020-")
    assert len({entry.question.id for entry in before}) == len(before)


@pytest.fixture(scope="module")
def source():
    return world.Counterfactuals()


@pytest.fixture(scope="module")
def samples(source):
    rng = np.random.default_rng(0)
    return [source.sample(rng) for _ in range(20_000)]


def test_counterfactual_answers_stand_in_their_passage_verbatim(samples):
    for example in samples:
        assert example.answer
        assert example.answer in example.text
        assert example.country in example.question
        assert example.country in example.text
        assert example.title.startswith(f"{example.country}: ")


def test_no_test_country_is_seen_in_counterfactual_training(samples):
    hidden = {c for e in world.EDITIONS for s in ("validation", "test") for c in world.countries(e, s)}
    named = re.compile(rf"\b({'|'.join(map(re.escape, sorted(hidden, key=len, reverse=True)))})\b")
    for example in samples:
        assert not named.search(" ".join(example)), example


def test_permuted_values_come_from_train_countries_only(source):
    train = {c for e in world.EDITIONS for c in world.countries(e, "train")}
    allowed = collections.defaultdict(set)
    for e in world.EDITIONS:
        for fact in world.load_facts(e):
            if fact.country in train:
                allowed[fact.relation].add(fact.value)
    assert set(source.countries) <= train
    for relation, values in source.values.items():
        assert values, relation
        assert set(values) <= allowed[relation]


def test_counterfactual_values_are_seldom_the_truth(samples):
    truth = {fact[:2]: fact.value for fact in world.load_facts("2020")}
    real = [example for example in samples if (example.country, example.relation) in truth]
    assert len(real) > 0.35 * len(samples)
    assert np.mean([truth[e.country, e.relation] == e.answer for e in real]) < 0.05


def test_half_of_the_counterfactual_countries_are_invented_and_spelt_diversely(samples, source):
    invented = [example.country for example in samples if example.country not in source.countries]
    assert 0.4 < len(invented) / len(samples) < 0.6
    assert len(set(invented)) > 0.75 * len(invented)
    people = [example.answer for example in samples if example.relation == "head of government"]
    assert len(set(people)) > 0.6 * len(people)


def test_all_relations_are_asked_about(samples):
    count = collections.Counter(example.relation for example in samples)
    assert set(count) == set(world.RELATIONS)
    assert min(count.values()) > 0.5 * len(samples) / len(world.RELATIONS)


def test_one_fact_is_one_sentence(source):
    rng = np.random.default_rng(1)
    for _ in range(500):
        example = source.sample(rng, facts=(1, 1))
        statements = world.RELATIONS[example.relation].statements
        told = {
            relations.state(world.RELATIONS[example.relation], i, example.country, example.answer)
            for i in range(len(statements))
        }
        assert example.text in told


def test_a_group_is_one_country_in_several_sections(source):
    rng = np.random.default_rng(2)
    for _ in range(200):
        group = source.sample_group(rng, 5)
        assert len({example.country for example in group}) == 1
        assert len({world.RELATIONS[example.relation].section for example in group}) == 5


def test_counterfactuals_repeat_with_the_seed(source):
    again = world.Counterfactuals()
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    assert [source.sample(one) for _ in range(50)] == [again.sample(two) for _ in range(50)]


def test_three_thousand_counterfactuals_take_less_than_a_second():
    program = (
        "import time, numpy as np; from rag_jax.text.world_facts import Counterfactuals; "
        "source, rng = Counterfactuals(), np.random.default_rng(4); start = time.process_time(); "
        "[source.sample(rng) for _ in range(3_000)]; print(time.process_time() - start)"
    )  # in a process of its own, without the runtime type checks of the tests
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 1.0


def test_importing_the_package_does_not_import_tfds():
    program = "import sys, rag_jax.text.world_facts; sys.exit('tensorflow_datasets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
