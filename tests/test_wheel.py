"""The wheel in a virtual environment that never saw the source tree: what `pip install rag-jax` gives a user.

Everything that the package needs is installed with it, so this takes minutes and a package index.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rag_jax.config import to_json
from tests.small_runs import small, write_files

ROOT = Path(__file__).resolve().parent.parent
BUILT_FROM = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
TRAIN = """
import sys
from rag_jax.config import finalise, from_json
from rag_jax.training.loop import train
train(finalise(from_json(open(sys.argv[1]).read())), sys.argv[2])
"""
pytestmark = pytest.mark.slow


def run(*command, cwd, **variables):
    """What a command prints; without the variables that lead to this tree or to this test's way of compiling."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=inherited | {"JAX_PLATFORMS": "cpu"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing of the build stays in the tree."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "rag_jax", source / "rag_jax", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", source / "dist", ".", cwd=source)
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of the commands of a new environment with the wheel and what it requires."""
    place = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    commands = place / "venv" / "bin"
    run(commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=place)
    return commands


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("rag_jax/")}
    files = (path for path in (ROOT / "rag_jax").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert inside == {path.relative_to(ROOT).as_posix() for path in files}
    assert "rag_jax/py.typed" in inside


def test_what_is_imported_is_the_installed_package(installed, tmp_path):
    assert run(installed / "python", "-c", "import rag_jax; print(rag_jax.__file__)", cwd=tmp_path).startswith(
        str(installed.parent)
    )
    assert run(installed / "rag-jax", "--version", cwd=tmp_path).startswith("rag-jax  0.")


def test_the_installed_command_answers(installed, tmp_path):
    question = "who is the head of government of Kenya"
    command = (installed / "rag-jax", "ask", question, "--json")
    found = json.loads(run(*command, cwd=tmp_path, RAG_JAX_CACHE=str(tmp_path / "cache")))
    assert found["text"] == "Uhuru Kenyatta"


def test_the_installed_package_makes_a_train_step(installed, tmp_path):
    config = small(write_files(tmp_path, 16), train__steps=1, train__checkpoint_every=1)
    (tmp_path / "config.json").write_text(to_json(config))
    run(installed / "python", "-c", TRAIN, "config.json", "run", cwd=tmp_path)
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["loss"] > 0
