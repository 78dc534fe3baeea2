"""What the reference pages say that the code says already: public names, fields of the configuration, commands, flags.

mkdocs calls `on_page_markdown` for every page. A comment of a page is replaced by what it names:

    <!-- names: rag_jax.api -->   the public names of a module, each by its docstring
    <!-- configuration -->        every field with its default, what it may be and what it means
    <!-- commands -->             `rag-jax`, command by command
    <!-- flags: train -->         the flags of train.py
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import typer
from absl import flags

import rag_jax
from rag_jax.cli import app
from rag_jax.config import FIELDS, Config, override_flags
from rag_jax.config.schema import Names, OptionalFloat, OptionalInt

EMPTY = "''"  # a field without text
TYPES = {Names: "names", OptionalInt: "int or none", OptionalFloat: "float or none"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs' hook: the page with its comments replaced."""
    makers = {"names": names, "configuration": configuration, "commands": commands, "flags": script_flags}

    def made(found: re.Match[str]) -> str:
        return makers[found[1]](*filter(None, [found[2]]))

    return re.sub(rf"^<!-- ({'|'.join(makers)})(?:: (\S+))? -->$", made, markdown, flags=re.MULTILINE)


def names(module: str) -> str:
    """A line for mkdocstrings for each public name that a module gives."""
    return "\n\n".join(f"::: {module}.{name}" for name in rag_jax.PLACES[module])


def configuration() -> str:
    """Every group of fields as a table."""
    return "\n\n".join(_group(Config, "", "Top level"))


def _group(group: type, prefix: str, title: str) -> Iterator[str]:
    summary, described = documented(group)
    rows = [
        (f"`{prefix}{field.name}`", _default(prefix + field.name), _values(field), described[field.name])
        for field in dataclasses.fields(group)
        if not dataclasses.is_dataclass(field.type)
    ]
    yield f"## {title}\n\n{summary}\n\n" + _table(("field", "default", "may be", "meaning"), rows)
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(field.type):
            yield from _group(field.type, f"{prefix}{field.name}.", prefix + field.name)


def documented(group: type) -> tuple[str, dict[str, str]]:
    """A group's docstring without its list of attributes, and what that says of each."""
    summary, _, listed = inspect.getdoc(group).partition("\nAttributes:\n")
    entries = re.findall(r"^  (\w[\w, ]*): (.*(?:\n    .*)*)", listed, re.MULTILINE)
    found = {name: " ".join(text.split()) for listed, text in entries for name in listed.split(", ")}
    return summary.strip(), found


def _default(path: str) -> str:
    value = FIELDS[path].default
    return f"`{override_flags([(path, value)])[0].partition('=')[2] or EMPTY}`"


def _values(field: dataclasses.Field) -> str:
    meta = field.metadata
    if "choices" in meta:
        return ", ".join(f"`{choice or EMPTY}`" for choice in meta["choices"])
    low, below = meta.get("low"), meta.get("below", math.inf)
    parts = [TYPES.get(field.type) or field.type.__name__]
    parts += [f"at least {low}"] * (low is not None) + [f"below {below}"] * (below < math.inf)
    return ", ".join(parts)


def commands() -> str:
    """Every command of `rag-jax`: what it does, its arguments and options, examples."""
    return "\n\n".join(_command("rag-jax", typer.main.get_command(app)))


def _command(name: str, command: Any) -> Iterator[str]:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\nExample")
    parts = [f"## {name}", text.strip()]
    rows = [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
    parts += [_table(("", "", "default"), rows)] * bool(rows)
    if examples:
        _, _, lines = examples.partition(":\n")
        parts.append(f"```sh\n{inspect.cleandoc(lines)}\n```")
    yield "\n\n".join(parts)
    for inner, one in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {inner}", one)


def _parameter(parameter: Any) -> tuple[str, str, str]:
    is_option = parameter.param_type_name == "option"
    shown = ", ".join(parameter.opts) if is_option else parameter.name.upper()
    default = "required" if parameter.required else ""
    if parameter.default not in (None, False) and not callable(parameter.default):
        default = f"`{parameter.default}`"
    return f"`{shown}`", getattr(parameter, "help", None) or "", default


def script_flags(script: str) -> str:
    """A script's own flags, without absl's."""
    rows = [(f"`--{name}`", flag.help, _flag_default(flag)) for name, flag in sorted(defined_by(script).items())]
    return _table(("flag", "", "default"), rows)


def _flag_default(flag: flags.Flag) -> str:
    return f"`{flag.default_as_str}`" if flag.default else ""


@functools.cache
def defined_by(script: str) -> dict[str, flags.Flag]:
    """The flags that train.py or eval.py defines, those of the libraries that it imports left out.

    They are taken out of absl's global flags again, as both scripts define some of the same names.
    """
    importlib.import_module(script)
    of = flags.FLAGS.find_module_defining_flag
    found = {name: flags.FLAGS[name] for name in flags.FLAGS if of(name) in (script, "rag_jax.flags")}
    for name in found:
        with contextlib.suppress(AttributeError):
            delattr(flags.FLAGS, name)
    return found


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; a bar or a line inside a cell would end it."""
    lines = [columns, ("---",) * len(columns), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
