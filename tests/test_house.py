"""The rules of the house, held by walking the source: which module may import which, and how a module is written.

A rule is a function (path, text) -> complaints, so that each can also be shown a made-up offence.
"""

import ast
import functools
import graphlib
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400

# A room, and what it may import from outside itself. A module belongs to the longest row that it lies under.
LIBRARY = tuple(f"rag_jax.{name}" for name in ("types", "config", "sharding", "text", "models", "index", "rag"))
EXPERIMENT = ("rag_jax.config", "rag_jax.flags", "rag_jax.training", "rag_jax.evaluation")
MAY_IMPORT = {
    "rag_jax.types": (),
    "rag_jax.config": (),
    "rag_jax.flags": ("rag_jax.config",),
    "rag_jax.sharding": (),
    "rag_jax.rag.marginal": (),
    "rag_jax.tpu": (),
    "rag_jax.text": ("rag_jax.types",),
    "rag_jax.models": ("rag_jax.types",),
    "rag_jax.index": ("rag_jax.types", "rag_jax.sharding", "rag_jax.models", "rag_jax.text"),
    "rag_jax.rag": LIBRARY,
    "rag_jax.experiment": LIBRARY,
    "rag_jax.training": (*LIBRARY, "rag_jax.experiment"),
    "rag_jax.evaluation": (*LIBRARY, "rag_jax.experiment"),
    "rag_jax.fit": (*LIBRARY, "rag_jax.tpu", "rag_jax.experiment", "rag_jax.training"),
    "rag_jax.api": (*LIBRARY, "rag_jax.experiment", "rag_jax.training"),
    "rag_jax.commands": (
        *LIBRARY,
        "rag_jax.api",
        "rag_jax.flags",
        "rag_jax.tpu",
        "rag_jax.fit",
        "rag_jax.experiment",
        "rag_jax.training",
        "rag_jax.evaluation",
    ),
    "rag_jax.cli": (*LIBRARY, "rag_jax.commands", "rag_jax.experiment", "rag_jax.training", "rag_jax.evaluation"),
    "train": EXPERIMENT,
    "eval": EXPERIMENT,
    "configs": ("rag_jax.config",),
}
# Names the public names of all rooms; nobody imports from it.
DOOR = "rag_jax/__init__.py"
OURS = {"rag_jax", "configs", "train", "eval", "tests", "benchmarks", "docs"}

# Reading a file must never run code that the file holds.
UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy", "code"}
UNSAFE_NAMES = {
    *("eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.full_load_all", "yaml.unsafe_load", "yaml.unsafe_load_all"),
    "pandas.read_pickle",
}
# What lets a library run code, or a shell, for what it is given: these may be named only to be switched off.
UNSAFE_SWITCHES = {"allow_pickle", "trust_remote_code", "shell"}

# Written so that it does not match itself.
HOME_PATH = re.compile(r"(?<![\w.~/-])/(?:home|Users|root|work)/\w[^\s\"'`]*")


def repository_files() -> list[Path]:
    """Tracked files, and new ones that git does not ignore; without git (a source archive) every file of ours."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, capture_output=True, text=True, check=True).stdout.rstrip("\0")
    except (OSError, subprocess.CalledProcessError):
        names = ""
    places = ["*", *(f"{folder}/**/*" for folder in OURS)]
    found = map(ROOT.joinpath, names.split("\0")) if names else (path for place in places for path in ROOT.glob(place))
    return sorted(path for path in found if path.is_file())


def texts(paths: list[Path]) -> dict[str, str]:
    """Path from the root -> content, for the files that are text."""
    found = {}
    for path in paths:
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return found


FILES = texts(repository_files())
PYTHON = {path for path in FILES if path.endswith(".py")}
PACKAGE = {path for path in PYTHON if path.startswith("rag_jax/")}
PRODUCT = PACKAGE | {path for path in PYTHON if path.startswith("configs/") or path in ("train.py", "eval.py")}
parse = functools.cache(lambda path, text: ast.parse(text, path))


def module_name(path: str) -> str:
    """`rag_jax/rag/__init__.py` -> `rag_jax.rag`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def nodes(node: ast.AST, into_functions: bool = True) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if into_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from nodes(child, into_functions)


def imports(path: str, text: str, into_functions: bool = True) -> Iterator[tuple[int, str]]:
    """Yields (line, full dotted name) of everything imported: `from a.b import c` is a.b.c, module or not."""
    package = path.split("/")[:-1]
    for node in nodes(parse(path, text), into_functions):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, node.module] if node.module else above
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def lies_under(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def room_of(name: str) -> str | None:
    return max((room for room in MAY_IMPORT if lies_under(name, room)), key=len, default=None)


def imports_flow_one_way(path: str, text: str) -> list[str]:
    room = room_of(module_name(path))
    allowed = MAY_IMPORT.get(room, ())
    return [
        f"{path}:{line}: {module_name(path)} may not import {name}"
        for line, name in imports(path, text)
        if path != DOOR
        and name.split(".")[0] in OURS
        and not (room and room_of(name) == room)
        and not any(lies_under(name, other) for other in allowed)
    ]


def every_module_has_a_row(path: str, text: str) -> list[str]:
    known = room_of(module_name(path)) or path == DOOR
    return [] if known else [f"{path}: no row of MAY_IMPORT says what it may import"]


def docstring_names_its_side(path: str, text: str) -> list[str]:
    if path.endswith("__init__.py") and not text.strip():
        return []
    doc = ast.get_docstring(parse(path, text)) or ""
    return [] if re.match(r"(HOST|DEVICE)\b", doc) else [f"{path}: the docstring does not start with HOST or DEVICE"]


def files_are_short(path: str, text: str) -> list[str]:
    count = len(text.splitlines())
    return [f"{path}: {count} lines; past {MAX_LINES} a file is two"] if count > MAX_LINES else []


def no_module_is_called_utils(path: str, text: str) -> list[str]:
    vague = any(re.search(r"(^|_)utils?$", part) for part in module_name(path).split("."))
    return [f"{path}: a module is named after what it does"] if vague else []


def nothing_experimental(path: str, text: str) -> list[str]:
    return [
        f"{path}:{line}: {name}; of jax.experimental only topologies is used"
        for line, name in imports(path, text)
        if lies_under(name, "jax.experimental") and not lies_under(name, "jax.experimental.topologies")
    ]


def aliases(path: str, text: str) -> dict[str, str]:
    """What a module calls its imports -> their full names: {'np': 'numpy'}."""
    found = {}
    for node in nodes(parse(path, text)):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_on(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is False)


def nothing_read_can_run(path: str, text: str) -> list[str]:
    used = [(line, n) for line, n in imports(path, text) if n.split(".")[0] in UNSAFE_MODULES or n in UNSAFE_NAMES]
    whole = aliases(path, text)
    for node in nodes(parse(path, text)):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            called = whole.get(first, first) + dot + rest
            on = [
                f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords if k.arg in UNSAFE_SWITCHES and is_on(k.value)
            ]
            on += ["allow_pickle by its place"] * (called in ("numpy.load", "numpy.save") and len(node.args) > 2)
            used += [(node.lineno, name) for name in [called] * (called in UNSAFE_NAMES) + on]
    return [f"{path}:{line}: {name} can run code that a file holds" for line, name in used]


def no_path_of_one_machine(path: str, text: str) -> list[str]:
    lines = enumerate(text.splitlines(), start=1)
    return [f"{path}:{number}: {hit[0]}" for number, line in lines for hit in HOME_PATH.finditer(line)]


def cycle(files: Mapping[str, str]) -> list[str]:
    """A chain of modules that import each other at their top level, first = last; empty when there is none."""
    modules = {module_name(path) for path in files}
    graph = {}
    for path, text in files.items():
        names = [name for _, name in imports(path, text, into_functions=False)]
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module_name(path)] = (targets & modules) - {module_name(path)}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        (imports_flow_one_way, PRODUCT),
        (every_module_has_a_row, PRODUCT),
        (docstring_names_its_side, PACKAGE),
        (files_are_short, PYTHON),
        (no_module_is_called_utils, PYTHON),
        (nothing_experimental, PYTHON),
        (nothing_read_can_run, PRODUCT),
        (no_path_of_one_machine, FILES.keys()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_tree_keeps(rule, paths):
    assert "rag_jax/types.py" in paths
    complaints = [complaint for path in sorted(paths) for complaint in rule(path, FILES[path])]
    assert not complaints, "\n" + "\n".join(complaints)


def test_every_folder_of_the_package_is_installed():
    assert not {path.rpartition("/")[0] + "/__init__.py" for path in PACKAGE} - PACKAGE


def test_no_modules_import_each_other_in_a_circle():
    assert not cycle({path: FILES[path] for path in PYTHON})


@pytest.mark.parametrize(
    ("rule", "path", "text", "complaint"),
    [
        (imports_flow_one_way, "rag_jax/rag/marginal.py", "from . import loss", "may not import rag_jax.rag.loss"),
        (imports_flow_one_way, "rag_jax/text/x.py", "def f():\n  import rag_jax.models.bert", "x.py:2: rag_jax.text.x"),
        (imports_flow_one_way, "rag_jax/training/x.py", "from rag_jax import evaluation", "rag_jax.evaluation"),
        (imports_flow_one_way, "rag_jax/evaluation/x.py", "from ..training.loop import fit", "rag_jax.training.loop"),
        (imports_flow_one_way, "rag_jax/config.py", "import configs.nq", "configs.nq"),
        (imports_flow_one_way, "configs/x.py", "from rag_jax.types import Passage", "rag_jax.types"),
        (every_module_has_a_row, "rag_jax/new.py", "", "no row"),
        (docstring_names_its_side, "rag_jax/text/x.py", '"""Reads text."""', "HOST or DEVICE"),
        (files_are_short, "tests/x.py", "\n" * (MAX_LINES + 1), "401 lines"),
        (no_module_is_called_utils, "rag_jax/text/text_utils.py", "", "named after"),
        (nothing_experimental, "train.py", "from jax.experimental import topologies, pjit", "jax.experimental.pjit"),
        (nothing_read_can_run, "rag_jax/x.py", "import pickle", "pickle"),
        (nothing_read_can_run, "rag_jax/x.py", "y = yaml.load(f)", "yaml.load"),
        (nothing_read_can_run, "rag_jax/x.py", "y = np.load(f, allow_pickle=True)", "allow_pickle"),
        (nothing_read_can_run, "rag_jax/x.py", "y = np.load(f, allow_pickle=trusted)", "allow_pickle=trusted"),
        (
            nothing_read_can_run,
            "rag_jax/x.py",
            "import numpy as np\ny = np.load(f, None, True)",
            "x.py:2: allow_pickle",
        ),
        (nothing_read_can_run, "rag_jax/x.py", "import torch\ny = torch.load(f)", "torch.load"),
        (nothing_read_can_run, "rag_jax/x.py", "import yaml as y\ny.unsafe_load(f)", "x.py:2: yaml.unsafe_load"),
        (nothing_read_can_run, "rag_jax/x.py", "y = eval(text)", "x.py:1: eval"),
        (
            nothing_read_can_run,
            "rag_jax/x.py",
            "AutoTokenizer.from_pretrained(f, trust_remote_code=ours)",
            "trust_remote",
        ),
        (no_path_of_one_machine, "README.md", "see\n" + "/".join(["", "home", "ada", "runs"]), "README.md:2"),
    ],
)
def test_an_offence_is_reported(rule, path, text, complaint):
    (found,) = rule(path, text)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rag_jax/rag/score.py", "from rag_jax.rag import marginal\nfrom rag_jax.types import Batch\nimport jax"),
        ("rag_jax/index/x.py", "from ..text.passages import read\nfrom . import store"),
        ("eval.py", "from rag_jax.evaluation import run"),
        ("configs/nq.py", "from rag_jax import config"),
    ],
)
def test_an_import_down_the_house_is_allowed(path, text):
    assert not imports_flow_one_way(path, text)


def test_a_circle_is_reported():
    files = {"a/x.py": "from a import y", "a/y.py": "def f(): import a.z", "a/z.py": "from a.x import f"}
    assert not cycle(files)
    assert set(cycle(files | {"a/y.py": "from .z import g"})) == {"a.x", "a.y", "a.z"}
