"""Commands of a shell block: read by the parsers that would read them, or run.

What is ours is read by our own parsers: `rag-jax` by its typer app, train.py and eval.py by their flags, up to the
final configuration. Of make, pip and pytest the targets, extras and tests must exist. Cloud commands are not ours: only
what they run on the machines is read.
"""

import configparser
import copy
import os
import re
import shlex
import subprocess
import sys

import typer
from absl import flags
from typer.testing import CliRunner

from docs.generated import defined_by
from rag_jax import flags as rag_flags
from rag_jax.cli import app
from rag_jax.config import Config, parse_arg, update
from rag_jax.evaluation.command import whole_numbers
from tests.docs.blocks import ROOT, BlockError

FOREIGN = ("cd", "export", "gcloud", "hf", "source", "xpk")
SHELL = ("cat", "cp", "echo", "head", "ls", "mkdir", "printf", "wc")
COLUMNS = "100"  # of the terminal that the pages show


def command_lines(text):
    """The commands of a block, one a line, with what follows a backslash."""
    lines = (line.strip() for line in text.replace("\\\n", " ").split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def words_of(line):
    """Program and arguments, without the variables set before them."""
    words = shlex.split(re.sub(r"\s# .*", "", line))
    while words and re.fullmatch(r"\w+=.*", words[0]):
        del words[0]
    return words


def check(line):
    """Reads a command and runs nothing.

    Raises:
      BlockError: no parser is known for it, or something in it does not exist. Otherwise what its own parser raises.
    """
    words = words_of(line)
    if not words:
        return
    program, *arguments = words
    if program in FOREIGN:
        for argument in arguments:
            if argument.startswith("--command="):
                for inner in argument.removeprefix("--command=").split("&&"):
                    check(inner)
    elif program in CHECKS:
        CHECKS[program](arguments)
    elif program not in SHELL:
        raise BlockError(f"nothing is known about the command {program!r}: tests/docs/commands.py says how one is read")


def run(line):
    """Runs a command in the working directory and gives what it printed on standard output.

    Raises:
      BlockError: it failed, or is none that the tests run.
    """
    program, *arguments = words_of(line)
    if program == "rag-jax":
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": COLUMNS})
        if result.exit_code:
            raise BlockError(f"{line}\nended with {result.exit_code}: {result.output}") from result.exception
        return result.stdout
    if program in SHELL:
        command = ["bash", "-ec", line]
    elif program == "python" and arguments[0] in ("train.py", "eval.py"):
        command = [sys.executable, *arguments]
    else:
        raise BlockError(f"{line}: not a command that is run here; mark the block: <!-- parsed: why -->")
    environment = os.environ | {"COLUMNS": COLUMNS, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise BlockError(f"{line}\nended with {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def check_cli(arguments):
    """By the typer app, down to the command of a group."""
    command, name, rest = typer.main.get_command(app), "rag-jax", list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            raise BlockError(f"rag-jax has no command {name!r}")
        command = command.commands[name]
    if rest == ["--version"]:  # whose parser prints them
        return
    context = command.make_context(name, rest)
    if name == "fit":
        _configuration(["rag-jax fit", f"--config={context.params['config']}", *context.args], flags.FlagValues())


def check_python(arguments):
    """train.py and eval.py by their flags; of a benchmark that it exists and knows the flags."""
    script, *rest = arguments
    if script == "train.py":
        _configuration([script, *rest], _flags_of("train"))
    elif script == "eval.py":
        values = _flags_of("eval")
        if left := values([script, *rest])[1:]:
            raise BlockError(f"eval.py: unexpected {' '.join(left)}")
        update(Config(), parse_arg(",".join(values["set"].value)))
        whole_numbers("--ks", values["ks"].value)
    elif script == "-m":
        CHECKS[rest[0]](rest[1:])
    else:
        if not (ROOT / script).is_file():
            raise BlockError(f"no script {script}")
        known = re.findall(r'"(--[a-z][\w-]*)"', (ROOT / script).read_text("utf-8"))
        if missing := [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]:
            raise BlockError(f"{script} has no {', '.join(missing)}")


def _configuration(argv, values):
    """Reads a command line with --config up to the final configuration."""
    rag_flags.define_flag(values, argv)
    if left := rag_flags.parse_flags(argv, values)[1:]:
        raise BlockError(f"{argv[0]}: unexpected {' '.join(left)}")


def _flags_of(script):
    """A copy of a script's flags apart from --config, whose overrides depend on the arguments it is defined with."""
    values = flags.FlagValues()
    for name, flag in defined_by(script).items():
        if name != "config":
            values[name] = copy.deepcopy(flag)
    return values


def check_make(targets):
    """That the Makefile has them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in targets:
        if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE):
            raise BlockError(f"the Makefile has no target {target!r}")


def check_pip(arguments):
    """That the package's extras exist."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    for word in arguments:
        extras = re.fullmatch(r"(?:\.|rag-jax)\[(.*)\]", word)
        if missing := set(extras[1].split(",") if extras else ()) - set(setup["options.extras_require"]):
            raise BlockError(f"{word}: setup.cfg has no extra {', '.join(missing)}")


def check_pytest(arguments):
    """That folders, files and the test behind -k exist."""
    paths = [word for word in arguments if word.startswith("tests")]
    if missing := [path for path in paths if not (ROOT / path).exists()]:
        raise BlockError(f"no {', '.join(missing)}")
    if "-k" in arguments:
        name = arguments[arguments.index("-k") + 1]
        if not any(f"def {name}(" in path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")):
            raise BlockError(f"no test is called {name!r}")


CHECKS = {
    "make": check_make,
    "pip": check_pip,
    "pytest": check_pytest,
    "python": check_python,
    "python3": check_python,
    "rag-jax": check_cli,
    "venv": lambda arguments: None,
}
