"""`import rag_jax`: quick, and every public name is where it is said to be; `rag-jax --version`."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import rag_jax
from rag_jax.cli import app

NAMES = sorted(name for names in rag_jax.PLACES.values() for name in names)


def test_importing_the_package_imports_nothing_that_takes_time():
    code = "import sys, rag_jax; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    assert "rag_jax" in loaded
    assert not {"jax", "jaxlib", "numpy", "flax", "transformers"} & set(loaded)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name):
    value = getattr(rag_jax, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    methods = vars(value).items() if inspect.isclass(value) and value.__module__.startswith("rag_jax.api") else ()
    bare = [method for method, own in methods if inspect.isfunction(own) and method[0] != "_" and not own.__doc__]
    assert not bare


def test_type_checkers_are_told_the_same_names():
    tree = ast.parse(pathlib.Path(rag_jax.__file__).read_text("utf-8"))
    told = {
        (node.module, alias.asname)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
    }
    assert told == {(module, name) for module, names in rag_jax.PLACES.items() for name in names}


def test_an_unknown_name_is_an_attribute_error_and_the_known_ones_are_listed():
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = rag_jax.lode
    assert set(NAMES) <= set(dir(rag_jax))


def test_the_version_names_what_computes():
    lines = CliRunner().invoke(app, ["--version"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["rag-jax", "jax", "jaxlib", "flax", "scann", "python", "devices"]
    assert "(cpu)" in lines[-1]
