"""The reference pages that are made from the code: nothing of it is left out."""

import re

import pytest
import typer

import rag_jax
from docs.generated import configuration, defined_by, documented, names, on_page_markdown
from rag_jax.cli import app
from rag_jax.config import FIELDS, LEAVES, Config
from tests.docs.blocks import ROOT

REFERENCE = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "reference").glob("*.md")}


def test_every_public_name_has_its_place_in_the_reference():
    pages = "\n".join(map(on_page_markdown, REFERENCE.values()))
    shown = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert sorted(shown) == sorted(f"{module}.{name}" for module, found in rag_jax.PLACES.items() for name in found)
    assert names("rag_jax.models.bert").split() == [
        ":::",
        "rag_jax.models.bert.Bert",
        ":::",
        "rag_jax.models.bert.BertConfig",
    ]


def test_every_field_of_the_configuration_is_described():
    groups = {"": Config} | {f"{path}.": field.type for path, field in FIELDS.items() if path not in LEAVES}
    described = {prefix + name for prefix, group in groups.items() for name in documented(group)[1]}
    assert described == set(LEAVES)
    rows = re.findall(r"^\| `([\w.]+)` \|", configuration(), re.MULTILINE)
    assert rows == LEAVES


def test_a_field_is_shown_with_its_default_and_what_it_may_be():
    (row,) = [line for line in configuration().splitlines() if line.startswith("| `index.recall_target` ")]
    assert row.startswith(
        "| `index.recall_target` | `0.99` | float or none, at least 0.5, below 1.0 | of that search on a TPU"
    )
    (row,) = [line for line in configuration().splitlines() if line.startswith("| `variant` ")]
    assert "| `sequence` | `sequence`, `token`, `fid` |" in row


def commands_of(command, name):
    yield name
    for inner, one in getattr(command, "commands", {}).items():
        yield from commands_of(one, f"{name} {inner}")


def test_every_command_and_flag_is_shown():
    page = on_page_markdown(REFERENCE["command-line"])
    wanted = list(commands_of(typer.main.get_command(app), "rag-jax"))
    assert len(wanted) > 10
    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## rag-jax")] == wanted
    for flag in ("config", "workdir", "sweep", "profile", "set", "ks"):
        assert f"| `--{flag}` |" in page
    assert set(defined_by("train")) == {"config", "workdir", "sweep", "sweep_print", "profile"}
    assert set(defined_by("eval")) == {"workdir", "set", "ks", "decodings"}


def test_a_table_of_a_page_has_as_many_cells_in_every_row():
    pages = "\n".join(map(on_page_markdown, REFERENCE.values()))
    tables = re.findall(r"(?:^\|.*\n)+", pages + "\n", re.MULTILINE)
    assert len(tables) > 20
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_an_unknown_module_is_an_error():
    with pytest.raises(KeyError, match="nowhere"):
        on_page_markdown("<!-- names: nowhere -->")
