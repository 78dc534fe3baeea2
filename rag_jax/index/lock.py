"""HOST. One writer at a time for an index directory, and the remains of writers that were killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator


@contextlib.contextmanager
def changing(directory: str | pathlib.Path) -> Iterator[None]:
    """Holds the right to change the index at `directory`; a second writer waits, so that no change is lost.

    Readers need no lock. The system frees it when its process ends, however it ends; whoever gets it next removes what
    killed writers left beside the directory. Not to be taken twice by one caller.
    """
    directory = pathlib.Path(directory).resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    path = directory.with_name(f".{directory.name}.lock")
    descriptor = _locked(path)
    try:
        clear_remains(directory)
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, or another writer's could be removed
        os.close(descriptor)


def _locked(path: pathlib.Path) -> int:
    """An open, locked file that is still the one at `path`: the holder before may have removed it meanwhile."""
    import fcntl  # late: a system without it can still search

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:  # removed at any moment up to now
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def clear_remains(directory: pathlib.Path) -> None:
    """Removes what killed writers left half-written beside a directory; none is alive, as the caller holds the lock.

    Embeddings that were being imported go too, as that begins anew; a build that can go on (`resume`) stays.

    Where two directories cannot be exchanged in one step, a kill between two renames leaves the index itself as
    "-old"; it goes back first.
    """
    remains = re.compile(re.escape(f".{directory.name}.") + r"(\d+-[0-9a-f]{8}(-old)?|importing)")
    found = [path for path in directory.parent.iterdir() if remains.fullmatch(path.name)]
    old = [path for path in found if path.name.endswith("-old")]
    if old and not os.path.lexists(directory):
        os.rename(old[0], directory)
        found.remove(old[0])
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
