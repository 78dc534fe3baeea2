"""Docstrings of the public names, held by walking the source: that they are there, with shapes and errors.

Public is what no underscore begins, in the rooms that a user of the library imports from. As in test_house.py, a rule
is a function (path, text) -> complaints.
"""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.test_house import FILES, PACKAGE, nodes, parse

ROOMS = ("rag", "models", "index", "training", "evaluation", "api")
PUBLIC = {path for path in PACKAGE if path.split("/")[1] in ROOMS}
ARRAYS = {"Array", "jax.Array", "np.ndarray"}
SHAPE = re.compile(r"\[[A-Za-z0-9][\w,'*# ]*\]")  # [B,K,T]
Function = ast.FunctionDef | ast.AsyncFunctionDef
# What ends a program says so in other places than a docstring.
NOT_TOLD = {"SystemExit", "StopIteration", "AttributeError", "NotImplementedError"}


def definitions(path: str, text: str) -> Iterator[tuple[str, ast.AST, ast.ClassDef | None]]:
    """Yields (name, node, class around it) of the functions, classes and methods of a module, private ones too."""
    for node in parse(path, text).body:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name, node, None
        if isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{inner.name}", inner, node)
                for inner in node.body
                if isinstance(inner, Function) and not any("overload" in ast.unparse(d) for d in inner.decorator_list)
            )


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def public(path: str, text: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Yields (name, node, docstring) of what is public; what a constructor takes and raises stands in its class's."""
    for name, node, around in definitions(path, text):
        if is_public(name):
            yield name, node, ast.get_docstring(node) or ""
        elif around and node.name in ("__init__", "__post_init__", "__call__") and is_public(around.name):
            yield name, node, (ast.get_docstring(node) or "") + "\n" + (ast.get_docstring(around) or "")


def everything_public_has_a_docstring(path: str, text: str) -> list[str]:
    return [
        f"{path}:{node.lineno}: {name} has no docstring" for name, node, doc in public(path, text) if not doc.strip()
    ]


def bare_arrays(annotation: ast.AST | None) -> bool:
    """Whether an array stands in an annotation without a shape: `Array`, but not `Float[Array, "B K"]`."""
    if annotation is None or isinstance(annotation, ast.Constant):
        return False
    if isinstance(annotation, ast.Name | ast.Attribute):
        return ast.unparse(annotation) in ARRAYS
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("dict", "Mapping"):
        return False  # arrays by their names, each of a shape of its own
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        first, *rest = annotation.slice.elts
        if ast.unparse(first) in ARRAYS and rest and isinstance(rest[0], ast.Constant):
            return False
    return any(map(bare_arrays, ast.iter_child_nodes(annotation)))


def arrays_have_shapes(path: str, text: str) -> list[str]:
    complaints = []
    for name, node, doc in public(path, text):
        if isinstance(node, Function) and not SHAPE.search(doc):
            of = {
                argument.arg: argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)
            }
            of = {argument: one for argument, one in of.items() if not argument.endswith("key")}  # of random numbers
            bare = [argument for argument, one in (of | {"return": node.returns}).items() if bare_arrays(one)]
            complaints += [f"{path}:{node.lineno}: {name}: no shape of {argument}" for argument in bare]
    return complaints


@functools.cache
def bases() -> dict[str, tuple[str, ...]]:
    """Error -> what it is a kind of, for the package's own and Python's."""
    found = {
        node.name: tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
        for path in sorted(PACKAGE)
        for node in nodes(parse(path, FILES[path]))
        if isinstance(node, ast.ClassDef) and node.bases
    }
    return found | {"FileNotFoundError": ("OSError",), "UnicodeDecodeError": ("ValueError",)}


def kinds(error: str) -> set[str]:
    """An error's name and those of what it is a kind of."""
    return {error}.union(*(kinds(base) for base in bases().get(error, ())))


def told(doc: str) -> set[str]:
    """The names under `Raises`."""
    _, _, section = doc.partition("Raises:\n")
    entries = re.findall(r"^ {2}(\w[\w, ]*):", section, re.MULTILINE)
    return {name for entry in entries for name in entry.split(", ")}


def raised(node: ast.AST, known: dict[str, ast.AST], around: str = "", seen: frozenset[str] = frozenset()) -> set[str]:
    """Names of the errors that a function raises itself or by a private function of its module, and does not catch."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.Try):
            caught = {
                word for handler in child.handlers for word in re.findall(r"\w+", ast.unparse(handler.type or node))
            }
            inside = raised(ast.Module(child.body, []), known, around, seen)
            found |= {error for error in inside if not kinds(error) & caught}
            found |= raised(ast.Module([*child.handlers, *child.orelse, *child.finalbody], []), known, around, seen)
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            error = ast.unparse(child.exc.func)
            made = known.get(error)  # a private function that makes the error
            found.add(ast.unparse(made.returns) if isinstance(made, Function) and made.returns else error)
        if isinstance(child, ast.Call):
            called = ast.unparse(child.func).replace("self.", f"{around}.")
            if called in known and not is_public(called) and called not in seen:
                found |= raised(known[called], known, around, seen | {called})
        found |= raised(child, known, around, seen)
    return {error for error in found if error.isidentifier() and error[0].isupper()} - NOT_TOLD


def errors_are_told(path: str, text: str) -> list[str]:
    known = {name: node for name, node, _ in definitions(path, text)}
    complaints = []
    for name, node, doc in public(path, text):
        if isinstance(node, Function):
            missing = sorted(
                error for error in raised(node, known, name.partition(".")[0]) if not kinds(error) & told(doc)
            )
            complaints += [f"{path}:{node.lineno}: {name} raises {error}; say when, under Raises" for error in missing]
    return complaints


@pytest.mark.parametrize("rule", [everything_public_has_a_docstring, arrays_have_shapes, errors_are_told])
def test_the_rooms_keep(rule):
    assert len(PUBLIC) > 60
    complaints = [complaint for path in sorted(PUBLIC) for complaint in rule(path, FILES[path])]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(
    ("rule", "text", "complaint"),
    [
        (everything_public_has_a_docstring, "def f(): pass", "x.py:1: f has no docstring"),
        (
            everything_public_has_a_docstring,
            'class A:\n  """Is."""\n  def f(self): pass',
            "x.py:3: A.f has no docstring",
        ),
        (arrays_have_shapes, 'def f(x: Array):\n  """Does."""', "x.py:1: f: no shape of x"),
        (arrays_have_shapes, 'def f() -> tuple[int, np.ndarray | None]:\n  """Does."""', "no shape of return"),
        (errors_are_told, 'def f():\n  """Does."""\n  raise ValueError("x")', "x.py:1: f raises ValueError"),
        (errors_are_told, 'def f():\n  """Does."""\n  _g()\ndef _g():\n  raise OSError("x")', "f raises OSError"),
        (errors_are_told, 'def f():\n  """Does."""\n  raise _g()\ndef _g() -> KeyError: ...', "f raises KeyError"),
        (
            errors_are_told,
            'class A:\n  """Is.\n\n  Raises:\n    OSError: x.\n  """\n  def __init__(self):\n    raise TypeError("x")',
            "x.py:7: A.__init__ raises TypeError",
        ),
        (
            errors_are_told,
            'def f():\n  """Does."""\n  try:\n    raise TypeError("x")\n  except ValueError:\n    pass',
            "f raises TypeError",
        ),
    ],
)
def test_an_offence_is_reported(rule, text, complaint):
    (found,) = rule("rag_jax/rag/x.py", text)
    assert complaint in found


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (everything_public_has_a_docstring, "def _f(): pass\nclass _A:\n  def f(self): pass"),
        (arrays_have_shapes, 'def f(x: Float[Array, "B K"] | None, dropout_key: Array):\n  """Does."""'),
        (arrays_have_shapes, 'def f(x: Array):\n  """Does with x, float32 [B,K]."""'),
        (errors_are_told, 'def f():\n  """Does.\n\n  Raises:\n    ValueError: x.\n  """\n  raise ConfigError("x")'),
        (
            errors_are_told,
            'def f():\n  """Does."""\n  try:\n    raise KeyError("x")\n  except (KeyError, OSError):\n    pass',
        ),
    ],
)
def test_what_is_documented_is_no_offence(rule, text):
    assert not rule("rag_jax/rag/x.py", text)
