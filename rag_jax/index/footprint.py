"""HOST. What an index will take in memory and on disk, before hours are spent on building it."""

from __future__ import annotations

import dataclasses

from rag_jax.index.backends import BACKENDS, backend_named
from rag_jax.index.scann import ScannSettings

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
SCALE_BYTES = 4  # of each int8 row
LEAF_BYTES = 4  # the number of the leaf that a vector is in
PASSAGE_BYTES = 620  # id, title and text of a passage of 100 words, with their places in the table
POSTING_BYTES, WORDS_OF_PASSAGE = 8, 60  # BM25: a row and a score for each different word of a passage


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes of an index.

    Attributes:
      codes: what the backend looks through first: ScaNN's codes, or BM25's word counts.
      codes_on_disk: the same in files. ScaNN writes a byte for each code of half a byte.
      vectors: the vectors that it scores with, in memory; on the devices for "device".
      stored: the float32 vectors on disk, mapped and read where needed.
      copies: smaller copies of them on disk, which ScaNN loads.
      passages: the passage table on disk, for passages of about 100 words.
    """

    codes: int
    codes_on_disk: int
    vectors: int
    stored: int
    copies: int
    passages: int

    @property
    def memory(self) -> int:
        """Bytes in memory while searching."""
        return self.codes + self.vectors

    @property
    def disk(self) -> int:
        """Bytes of the index directory."""
        return self.stored + self.copies + self.codes_on_disk + self.passages

    @property
    def disk_while_building(self) -> int:
        """Bytes on disk at the end of a resumable build: the kept shards and their passages lie beside the index."""
        return self.disk + self.stored + self.passages


def estimate(count: int, dim: int, backend: str = "scann", dtype: str = "float32") -> Estimate:
    """Memory and disk for N = `count` passages with vectors of D = `dim`.

    Args:
      count: N, 1 or more.
      dim: D, 1 or more; does not count for bm25.
      backend: a name in `BACKENDS`.
      dtype: float32, bfloat16 or int8: of the vectors that "device" and "scann" score with; exact takes float32.

    Raises:
      ValueError: an unknown backend or dtype, a dtype that the backend does not take, numbers below 1.
    """
    if dtype not in BYTES:
        raise ValueError(f"no dtype {dtype!r}; choose from {', '.join(BYTES)}")
    if backend_named(backend).texts:
        words = count * WORDS_OF_PASSAGE * POSTING_BYTES
        return Estimate(words, words, 0, 0, 0, count * PASSAGE_BYTES)
    if count < 1 or dim < 1:
        raise ValueError(f"an index holds at least one vector of one dimension, not {count} of {dim}")
    if backend == "exact" and dtype != "float32":
        raise ValueError('exact search takes float32; for smaller vectors choose backend "device"')
    stored = count * dim * BYTES["float32"]
    scored = count * (dim * BYTES[dtype] + (SCALE_BYTES if dtype == "int8" and backend == "device" else 0))
    codes = written = copies = 0
    if backend == "scann":
        settings = ScannSettings.derive(count)
        block, leaves = settings.dims_per_block, 2 if settings.soar else 1
        written = count * -(-dim // block) * leaves if block else 0
        codes = written // 2  # 4 bits a block
        if settings.leaves:
            written += count * leaves * LEAF_BYTES
        if not block:
            scored = stored  # few vectors are scored as they are
        elif dtype != "float32":
            copies = scored
    return Estimate(codes, written, scored, stored, copies, count * PASSAGE_BYTES)


def estimate_all(count: int, dim: int) -> list[tuple[tuple[str, str], Estimate]]:
    """((backend, dtype), estimate) of every backend with every dtype that it takes; "-" for one without vectors.

    Raises:
      ValueError: numbers below 1.
    """
    found = []
    for name, backend in sorted(BACKENDS.items()):
        for dtype in ("float32",) if backend.texts or name == "exact" else BYTES:
            found.append(((name, "-" if backend.texts else dtype), estimate(count, dim, name, dtype)))
    return found
