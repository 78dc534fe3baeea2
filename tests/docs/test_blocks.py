"""Every code block of the README and of docs/ runs, or says why it does not."""

import ast
import contextlib
import io

import numpy as np
import pytest

from tests.docs.blocks import PAGES, ROOT, BlockError, blocks_of, outputs_differ
from tests.docs.commands import COLUMNS, check, command_lines, run

BLOCKS = {page: blocks_of(page, (ROOT / page).read_text("utf-8")) for page in PAGES}
SLOW = [page for page, blocks in BLOCKS.items() if any(block.mark == "slow" for block in blocks)]
CHECKOUT = ("train.py", "eval.py", "configs", "rag_jax")  # what commands name by a path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where the index of World Facts is kept: it is made once for all pages."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def checkout(tmp_path, monkeypatch, cache):
    """A directory that looks like a checkout, as the working directory."""
    for name in CHECKOUT:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAG_JAX_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", COLUMNS)
    monkeypatch.syspath_prepend(tmp_path)
    with np.printoptions():  # a page may set its own
        yield tmp_path


def execute(block, names):
    """What a python block prints, its last expression's value at the end. `names` is the page's namespace."""
    path, _, _ = block.place.rpartition(":")
    tree = ast.parse("\n" * block.line + block.text, path)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, path, "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), path, "eval"), names)
        if value is not None:
            print(repr(value))
    return out.getvalue()


def try_block(block, names, directory, slow):
    """Does with a block what its kind says; gives what it printed, or None if it did not run."""
    if block.file:
        place = directory / block.file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, "utf-8")
        return None
    runs = not block.mark or (block.mark == "slow" and slow)
    if block.kind == "python":
        compile(block.text, block.place, "exec")
        return execute(block, names) if runs else None
    for line in command_lines(block.text) if not runs or block.kind == "sh" else ():
        check(line)
    return "".join(map(run, command_lines(block.text))) if runs else None


def try_page(blocks, directory, slow=False):
    """Tries the blocks in order; a text is compared with what the block before it printed.

    Raises:
      BlockError: a text that is not what was printed, or not the output of anything.
    """
    names, printed, before = {"__name__": "page"}, None, None
    for block in blocks:
        if block.kind != "text" or block.file:
            printed, before = try_block(block, names, directory, slow), block
        elif not block.mark:
            if before is None or before.file or before.mark == "parsed":
                raise BlockError(f"{block.place}: a text that nothing before it prints; mark it: not compared")
            if printed is not None and outputs_differ(block.text, printed):
                raise BlockError(f"{block.place}: {before.place} prints something else:\n{printed}")


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, checkout):
    try_page(BLOCKS[page], checkout)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_the_slow_blocks_of_a_page_run_too(page, checkout):
    try_page(BLOCKS[page], checkout, slow=True)


def test_all_kinds_and_marks_are_used():
    blocks = [block for page in BLOCKS.values() for block in page]
    assert {block.kind for block in blocks if not block.file} == {"python", "sh", "text"}
    assert {block.mark for block in blocks} == {"", "parsed", "slow", "not compared"}


def test_a_page_is_one_namespace_and_its_files_lie_in_one_directory(checkout):
    text = """
```text title="notes/keys.txt"
The porter keeps the keys.
```

```python
import pathlib
where = pathlib.Path("notes")
```

```python
(where / "keys.txt").read_text("utf-8")
```

```text
'The sexton ...
...
```

```sh
cat notes/keys.txt
```

```text
The porter keeps the keys.
```
"""
    with pytest.raises(BlockError, match=r"page:15: page:11 prints something else:\n'The porter keeps"):
        try_page(blocks_of("page", text), checkout)
    try_page(blocks_of("page", text.replace("sexton", "porter")), checkout)


def fenced(kind, text="x = 1\n", before=""):
    return f"{before}\n```{kind}\n{text}```\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (fenced("cpp"), "page:2: a block of kind 'cpp'; fence it as one of python, sh, text"),
        (fenced(""), "page:2: a block of kind ''"),
        ("So:\n\n    x = 1\n", "page:3: a block of kind ''"),
        (fenced('sh title="a.sh"'), "or with a title json"),
        (fenced("python linenums"), "only title="),
        (fenced("python", before="<!-- skipped: takes too long -->"), "none of parsed, slow, not compared"),
        (fenced("python", before="<!-- a remark -->"), "none of parsed, slow, not compared"),
        (fenced("sh", before="<!-- parsed: long -->"), "without a reason"),
        (fenced("python", before="<!-- parsed: takes too long -->"), "'parsed' is for sh"),
        ("```python\nx = 1\n", "1 lines of fences for 1 blocks"),
        ("<div>\n```sh\nls\n```\n</div>\n", "2 lines of fences for 0 blocks"),
        (fenced("text"), "a text that nothing before it prints"),
        (fenced("sh", "make demo\n"), "mark the block"),
        (fenced("sh", "rag-jax index info nowhere\n"), "no index there"),
    ],
)
def test_a_block_that_cannot_be_tried_is_an_error(checkout, text, message):
    with pytest.raises(BlockError, match=message):
        try_page(blocks_of("page", text), checkout)


PARSED = "<!-- parsed: only to be read -->"


@pytest.mark.parametrize(
    "line",
    [
        "make cake",
        "pip install -e '.[cake]'",
        "python -m pytest tests/cake",
        "python -m pytest tests -k test_cake",
        "python benchmarks/train.py --cake",
        "python train.py --config=configs/cake.py --workdir=runs/x",
        "python train.py --config=configs/world.py:cake=3 --workdir=runs/x",
        "python train.py --config=configs/world.py --workdir=runs/x --sweep=cake",
        "python eval.py --workdir=runs/x --set=eval.cake=3",
        "python eval.py --workdir=runs/x --ks=cake",
        "rag-jax cake",
        "rag-jax ask --cake",
        "rag-jax index info a_directory cake",
        "rag-jax fit --config=configs/nq.py:cake=3",
        'gcloud compute tpus tpu-vm ssh pod --command="cd x && python3 train.py --config=configs/nq.py:cake=3"',
        "cake",
    ],
)
def test_a_command_that_its_parser_refuses_is_an_error_although_it_does_not_run(checkout, capsys, line):
    with pytest.raises((Exception, SystemExit)) as refused:  # typer's, absl's or ours
        try_page(blocks_of("page", fenced("sh", f"{line}\n", PARSED)), checkout)
    assert "cake" in f"{refused.value}{capsys.readouterr().err}"


def test_a_command_that_its_parser_takes_does_not_run(checkout):
    lines = [
        "make demo  # takes minutes",
        "pip install -e '.[tpu,test]'",
        "python -m pytest -m slow tests/index/test_live_load.py",
        "python3 train.py --config=configs/world.py:k=2 --sweep=freeze \\\n  --workdir=runs/x --config.seed=3",
        "JAX_PROCESS_ID=1 python eval.py --workdir=runs/x --ks=1,2 --decodings=fast --set=eval.k=3",
        "rag-jax --version",
        "rag-jax index add nowhere nothing.tsv",
        "gcloud compute tpus tpu-vm ssh pod --worker=all --command='cd x && rag-jax ask why'",
    ]
    try_page(blocks_of("page", fenced("sh", "\n".join(lines) + "\n", PARSED)), checkout)
    assert not (checkout / "runs").exists()
