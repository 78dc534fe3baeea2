"""Kills builds and changes of an index at chosen moments; run by test_kill.py in a process of its own.

Each attempt is a fork, which kills itself (signal 9) just before the n-th thing that it does to the file system. No
jax runs here: it does not survive a fork, and exact search by numpy serves as well.
"""

import os
import pathlib
import random
import shutil
import signal
import sys

import numpy as np

from rag_jax.index import backends, store
from rag_jax.index.change import add_passages, delete_passages, swap_index
from rag_jax.index.resume import build_resumable
from rag_jax.index.store import build_index, open_index
from rag_jax.index.verify import verify_index
from rag_jax.types import Passage

TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "mmap.__new__"}
ENCODER = "e" * 64


class NumpySearcher:
    def __init__(self, vectors):
        self._vectors = vectors

    def search(self, queries, k):
        rows = np.argsort(-(queries @ self._vectors.T), axis=1, kind="stable")[:, :k]
        return np.pad(rows, ((0, 0), (0, k - rows.shape[1])), constant_values=-1).astype(np.int32)


backends.ExactSearcher = NumpySearcher  # the backend "exact", and what recall is measured against


def passages(first, last, word=""):
    return [Passage(f"p{n}", f"Title {n}", f"text {n}{word}") for n in range(first, last)]


def embed(some):
    """A vector that says which passage it belongs to."""
    rows = [np.frombuffer(f"{p.id} {p.text}".encode().ljust(24)[:24], np.uint8) for p in some]
    return np.stack(rows).astype(np.float32)


def content(directory):
    """What an index holds, once all that can be checked about it holds."""
    index = open_index(directory, encoder_fingerprint=ENCODER)
    faults = [check for check in verify_index(directory, embed, ENCODER) if check.fault]
    assert not faults, faults
    np.testing.assert_array_equal(index.vectors, embed(list(index.passages)))
    return list(index.passages)


def forked(operation, kill_at):
    """Runs an operation in a fork; (whether it was killed, how often it touched the file system)."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        touched = 0

        def hook(event, arguments):
            nonlocal touched
            if event in TOUCHES:
                touched += 1
                if touched == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        operation()
        os.write(sender, str(touched).encode())
        os._exit(0)
    os.close(sender)
    _, status = os.waitpid(child, 0)
    with os.fdopen(receiver) as stream:
        said = stream.read()
    assert os.WIFSIGNALED(status) or said, "the operation failed"
    return os.WIFSIGNALED(status), int(said or 0)


def main(name, place, attempts):
    place = pathlib.Path(place)
    directory, other = place / "index", place / "other"
    old, added, swapped = passages(0, 30), passages(25, 40, "!"), passages(100, 110)

    def make(where, some):
        build_index(where, some, embed(some), encoder_fingerprint=ENCODER, backend="exact")

    operations = {
        "build": lambda: build_resumable(
            directory, old, embed, encoder_fingerprint=ENCODER, backend="exact", shard_rows=4
        ),
        "add": lambda: add_passages(directory, added, embed, encoder_fingerprint=ENCODER, replace=True),
        "delete": lambda: delete_passages(directory, ["p3", "p0", "p29"]),
        "swap": lambda: swap_index(directory, other),
    }
    after = {
        "build": old,
        "add": old[:25] + added[:5] + added[5:],
        "delete": [p for p in old if p.id not in ("p3", "p0", "p29")],
        "swap": swapped,
    }
    make(other, swapped)

    def afresh():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(place / ".index.building", ignore_errors=True)
        if name != "build":
            make(directory, old)

    afresh()
    _, touches = forked(operations[name], kill_at=-1)
    assert content(directory) == after[name]
    chance = random.Random(0)
    outcomes = set()
    for _ in range(attempts):
        afresh()
        killed, _ = forked(operations[name], kill_at=chance.randint(1, touches))
        assert killed
        if name == "build" and not directory.exists():
            outcomes.add("old")
        else:
            found = content(directory)
            assert found in ((after[name],) if name == "build" else (old, after[name])), found
            outcomes.add("old" if found == old and name != "build" else "new")
        if name != "build" or not directory.exists():  # what was killed can be done again, and leaves nothing behind
            if name == "delete" and found == after[name]:
                continue  # nothing is left to delete
            operations[name]()
            assert content(directory) == after[name]
            left = sorted(p.name for p in place.iterdir())
            assert left == ["index", "other"], left
    print(name, touches, sorted(outcomes))


if __name__ == "__main__":
    store.RECALL_QUERIES = 8
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
