"""HOST. The index that a `Rag` answers from, changed under it: the next answer reads the new one."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator

from rag_jax.api.records import as_passages
from rag_jax.index import Index, LiveIndex, add_passages, delete_passages, swap_index
from rag_jax.index.change import Embed
from rag_jax.types import Passage


class ChangingIndex:
    """An index directory and what is open of it.

    Every change is made on disk, whole or not at all, and other readers of the directory see it when they refresh.

    Args:
      directory: the index.
      embed: passages -> float32 [n, D], by the encoder that made the index; None where passages cannot be embedded.
      encoder_fingerprint: of that encoder; None accepts any.

    Raises:
      FileNotFoundError: no index there.
      IndexMismatch: one that another encoder made, or a damaged one.
    """

    def __init__(
        self, directory: str | os.PathLike[str], embed: Embed | None = None, encoder_fingerprint: str | None = None
    ):
        self.directory = pathlib.Path(directory)
        self._embed, self._encoder = embed, encoder_fingerprint
        # A change compares the checksums of the files that it reads. To do so again whenever the index is opened, here
        # and at every refresh, would take a second for each GB.
        self._live = LiveIndex(self.directory, encoder_fingerprint=encoder_fingerprint, verify_large=False)

    @property
    def current(self) -> Index:
        """The index in use."""
        return self._live.index

    def add(self, passages: Iterable[str | Passage], replace: bool = False) -> None:
        """Adds passages; only they are embedded.

        Args:
          passages: at least one. A text becomes a passage without a title, its id made from its words.
          replace: one with a known id takes the place of the old one, instead of being refused.

        Raises:
          ValueError: an id that is there already or comes twice, no passages, or an index of vectors without the
            encoder that made it.
        """
        if self._embed is None and not self.current.searches_texts:
            raise ValueError(
                f"{self.directory}: new passages need the passage encoder that made the index, and the model came "
                "without one; give rag_jax.load(..., passage_encoder=DIRECTORY)"
            )
        new = as_passages(passages, lambda _, text: hashlib.blake2b(text.encode(), digest_size=8).hexdigest())
        add_passages(self.directory, new, self._embed, encoder_fingerprint=self._encoder or "", replace=replace)
        self.refresh()

    def delete(self, ids: Collection[str]) -> None:
        """Deletes passages by their ids.

        Raises:
          ValueError: no ids, ids that are not in the index (then nothing is deleted), or all of them.
        """
        delete_passages(self.directory, [ids] if isinstance(ids, str) else ids)
        self.refresh()

    def swap(self, source: str | os.PathLike[str]) -> None:
        """Puts another index in the place of this one: the paper's hot swap (section 4.5). `source` stays.

        Raises:
          FileNotFoundError: no index at `source`.
          IndexMismatch: one that another encoder made, or a damaged one.
          ValueError: `source` is this index.
        """
        swap_index(self.directory, pathlib.Path(source), encoder_fingerprint=self._encoder)
        self.refresh()

    def refresh(self) -> bool:
        """Goes over to what others have put there; returns whether that is another index than before."""
        return self._live.refresh()

    def __len__(self) -> int:
        return len(self.current.passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.current.passages)

    def __repr__(self) -> str:
        return f"ChangingIndex({str(self.directory)!r}: {len(self):,} passages, {self.current.manifest.backend})"
