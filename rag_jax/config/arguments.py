"""HOST. Texts of the command line as values of fields: config_flags' parsers, and the string after a config's name."""

import ast
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import config_flags

from rag_jax.config.schema import FIELDS, LEAVES, ConfigError, Names, OptionalFloat, OptionalInt, unknown_field


class _NamesParser(flags.ArgumentParser):
    def parse(self, argument: Any) -> tuple[str, ...]:
        if not isinstance(argument, str):
            return tuple(argument)
        try:
            value = ast.literal_eval(argument)
        except (ValueError, SyntaxError):
            value = None
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return tuple(name.strip() for name in argument.split(",") if name.strip())


class _OptionalParser(flags.ArgumentParser):
    def __init__(self, parser: flags.ArgumentParser):
        self.inner = parser

    def parse(self, argument: Any) -> Any:
        empty = isinstance(argument, str) and argument.lower() == "none"
        return None if empty or argument is None else self.inner.parse(argument)


_PARSERS = {
    Names: _NamesParser(),
    OptionalInt: _OptionalParser(flags.IntegerParser()),
    OptionalFloat: _OptionalParser(flags.FloatParser()),
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
}
for _type, _parser in _PARSERS.items():
    config_flags.register_flag_parser_for_type(_type, _parser)


def parse_arg(arg: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The string after the colon in `--config=file.py:variant=token,k=10`, as {'variant': 'token', 'k': 10}.

    Names are fields, dotted below the top (`optimizer.learning_rate=1e-5`), or words in `also`, whose values stay
    strings. Choices are not checked here, so a config file may give meaning to a value of its own. A piece without `=`
    continues a list: `freeze=question_encoder,generator`.

    Raises:
      ConfigError: an unknown name (with the nearest that exists), a name given twice, or an ill-typed value.
    """
    found: dict[str, Any] = {}
    last = ""
    for piece in filter(None, (part.strip() for part in arg.split(","))):
        name, equals, text = piece.partition("=")
        if not equals and last and FIELDS.get(last) and FIELDS[last].type is Names:
            found[last] += (piece,)
            continue
        if name not in also and name not in LEAVES:
            raise ConfigError(unknown_field(name, [*also, *LEAVES]))
        if not equals or name in found:
            raise ConfigError(f"config.{name}: {'given twice' if equals else 'needs a value, as in ' + name + '=...'}")
        try:
            found[name] = text if name in also else _PARSERS[FIELDS[name].type].parse(text)
        except ValueError as error:
            raise ConfigError(f"config.{name}: {text!r}: {error}") from None
        last = name
    return found
