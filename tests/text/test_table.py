import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from rag_jax.text import table as table_module
from rag_jax.text.table import PassageTable, written_beside
from rag_jax.types import Passage

PASSAGES = [Passage(f"id-{n}", f"Title é {n}" * (n % 3), f"text {n}\nline" * n) for n in range(50)]


@pytest.fixture(params=["disk", "memory"])
def table(request, tmp_path):
    return (
        PassageTable.write(tmp_path / "t", PASSAGES)
        if request.param == "disk"
        else PassageTable.from_passages(PASSAGES)
    )


def test_rows_come_back_in_any_order(table, rng):
    assert len(table) == len(PASSAGES)
    assert list(table) == PASSAGES
    for row in rng.permutation(len(PASSAGES)):
        assert table[row] == PASSAGES[row]


def test_a_table_is_a_sequence_of_passages(table):
    assert isinstance(table, Sequence)
    assert table[3:20:4] == PASSAGES[3:20:4]
    assert table[-2:] == PASSAGES[-2:]
    assert table[60:] == []
    assert PASSAGES[7] in table
    assert list(reversed(table)) == PASSAGES[::-1]


def test_a_table_of_a_table_is_the_table(table):
    assert PassageTable.from_passages(table) is table


def test_every_id_leads_to_its_row(table):
    assert [table.row_of(passage.id) for passage in PASSAGES] == list(range(len(PASSAGES)))


@pytest.mark.parametrize("id", ["", "id-50", "id", "\ud800"])
def test_an_unknown_id_is_a_key_error(table, id):
    with pytest.raises(KeyError, match="no passage with the id"):
        table.row_of(id)


@pytest.mark.parametrize("row", [-1, 50, np.int32(-1)])
def test_no_passage_is_not_the_last_passage(table, row):
    with pytest.raises(IndexError, match="of a table of 50"):
        table[row]


def test_disk_and_memory_have_one_fingerprint(tmp_path):
    written = PassageTable.write(tmp_path / "t", iter(PASSAGES))
    assert written.fingerprint == PassageTable.from_passages(PASSAGES).fingerprint
    assert written.fingerprint == PassageTable.open(tmp_path / "t").fingerprint


@pytest.mark.parametrize(
    "other",
    [
        [PASSAGES[1], PASSAGES[0], *PASSAGES[2:]],
        PASSAGES[:-1],
        [Passage("id-0", "T", ""), *PASSAGES[1:]],
        [Passage("id-0", "", "T"), *PASSAGES[1:]],
    ],
)
def test_any_change_changes_the_fingerprint(other):
    assert PassageTable.from_passages(other).fingerprint != PassageTable.from_passages(PASSAGES).fingerprint


def test_text_cannot_move_between_fields_unseen():
    splits = [("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"), ("abcd", "", "")]
    prints = {PassageTable.from_passages([Passage(*parts)]).fingerprint for parts in splits}
    assert len(prints) == len(splits)


def test_an_id_given_twice_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="'id-3': rows 3 and 50"):
        PassageTable.write(tmp_path / "t", [*PASSAGES, PASSAGES[3]])
    assert not list(tmp_path.iterdir())


def test_ids_with_one_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(table_module, "_hash", lambda id: len(id) % 2)
    table = PassageTable.from_passages(PASSAGES)
    assert [table.row_of(passage.id) for passage in PASSAGES] == list(range(len(PASSAGES)))
    with pytest.raises(KeyError):
        table.row_of("other")


def test_no_passages_are_refused(tmp_path):
    with pytest.raises(ValueError, match="given 0"):
        PassageTable.write(tmp_path / "t", [])


def test_a_table_in_the_way_is_kept(tmp_path):
    PassageTable.write(tmp_path / "t", PASSAGES)
    with pytest.raises(FileExistsError, match="exists already"):
        PassageTable.write(tmp_path / "t", PASSAGES[:1])
    assert len(PassageTable.open(tmp_path / "t")) == len(PASSAGES)


def test_a_source_that_breaks_leaves_nothing(tmp_path):
    def broken():
        yield PASSAGES[0]
        raise OSError("the disk went away")

    with pytest.raises(OSError, match="went away"):
        PassageTable.write(tmp_path / "t", broken())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["records.bin", "ends.npy", "id_hashes.npy", "id_rows.npy", "table.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "of another table"])
def test_files_that_do_not_belong_together_are_refused(tmp_path, name, damage):
    PassageTable.write(tmp_path / "t", PASSAGES)
    PassageTable.write(tmp_path / "u", PASSAGES[:-1])
    path = tmp_path / "t" / name
    contents = {
        "cut": path.read_bytes()[:-3],
        "empty": b"",
        "missing": None,
        "of another table": (tmp_path / "u" / name).read_bytes(),
    }
    path.unlink()
    if contents[damage] is not None:
        path.write_bytes(contents[damage])
    expected = FileNotFoundError if (name, damage) == ("table.json", "missing") else ValueError
    with pytest.raises(expected, match=r"not a whole passage table|no passage table"):
        PassageTable.open(tmp_path / "t")


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("system_call", [True, False])
def test_a_directory_is_replaced_whole_and_nothing_is_left_beside(tmp_path, monkeypatch, system_call):
    if not system_call:
        monkeypatch.setattr(table_module.sys, "platform", "other")
    target = tmp_path / "target"
    for content in ("first", "second"):
        with written_beside(target, replace=True) as beside:
            assert not target.exists() or (target / "x").read_text() == "first"
            (beside / "x").write_text(content)
            (beside / content).mkdir()
    assert (target / "x").read_text() == "second"
    assert names(target) == ["second", "x"]
    assert names(tmp_path) == ["target"]


def test_a_failed_second_rename_puts_the_old_directory_back(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module.sys, "platform", "other")
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").touch()
    calls, rename = itertools.count(), table_module.os.rename

    def second_fails(source, destination):
        if next(calls) == 1:
            raise OSError("no space")
        rename(source, destination)

    monkeypatch.setattr(table_module.os, "rename", second_fails)
    with pytest.raises(OSError, match="no space"), written_beside(target, replace=True) as beside:
        (beside / "new").touch()
    assert names(target) == ["old"]
    assert names(tmp_path) == ["target"]
