"""HOST. Approximate inner-product search by ScaNN, behind guards: bad input ends the process or finds garbage.

Every check here stands for something seen with ScaNN 1.4.2: NaN, infinite or huge vectors kill the training of a tree;
zero threads or a batch of zero kill the search; a NaN query finds row 0; missing results are row 0 with a NaN score;
files with too few rows load and answer out of range; its table of ids is a pickle, so rows are the only ids here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from rag_jax.index.protocol import NO_PASSAGE, check_queries, check_vectors, pad_rows_found

ABOUT = "searcher.json"
REORDER_DTYPES = ("float32", "bfloat16", "int8")
CODES = 16  # of 4 bits; ScaNN learns them from no fewer vectors
LARGEST_BATCH = 256  # queries that one thread scores at a time
SOAR = 1.5  # of 1.0 and 1.5 the one that finds more
OVERRETRIEVE = 2.0  # a vector may come from both of its leaves, so twice as many are taken before doubles go


@dataclasses.dataclass(frozen=True)
class ScannSettings:
    """How to build and search; make it with `derive` and override what you measured to be better.

    Attributes:
      leaves: partitions of the tree; 0 for no tree.
      leaves_to_search: partitions that a query looks into. More is slower and finds more.
      soar: puts every vector into a second leaf, chosen so that a query which misses the first finds it there (SOAR,
        Sun et al. 2023): the weight of that rule, 0 for one leaf each. Codes double, half the leaves find as much.
      dims_per_block: dimensions that share one 4-bit code (asymmetric hashing); 0 scores the vectors themselves.
      anisotropic_threshold: the T of score-aware quantization (Guo et al. 2020).
      reorder: candidates scored again with `reorder_dtype` vectors; a search takes at least 4 k. 0 for none.
      reorder_dtype: float32, bfloat16 (half the memory) or int8 (a quarter).
      training_sample: vectors that partitions and codes are learned from.
    """

    leaves: int = 0
    leaves_to_search: int = 0
    soar: float = 0.0
    dims_per_block: int = 0
    anisotropic_threshold: float = 0.2
    reorder: int = 0
    reorder_dtype: str = "float32"
    training_sample: int = 100_000

    @classmethod
    def derive(cls, count: int, **overrides: Any) -> ScannSettings:
        """Settings by ScaNN's rules of thumb for `count` vectors.

        Below 20,000 all vectors are scored, below 100,000 all codes, above that codes in a tenth of sqrt(count) leaves,
        with SOAR.

        Raises:
          TypeError: an override that is not a field.
        """
        chosen: dict[str, Any] = {}
        if count >= 20_000:
            chosen.update(dims_per_block=2, reorder=200)
        if count >= 100_000:
            leaves = round(math.sqrt(count))
            # Real questions need this much: among 15,000 Wikipedia passages a tenth of the leaves held 95 % of the ten
            # best, 89 % without SOAR, and without it the same recall takes twice the leaves.
            chosen.update(
                leaves=leaves,
                leaves_to_search=max(leaves // 10, 50),
                soar=SOAR,
                training_sample=max(100_000, 40 * leaves),
            )
        return cls(**(chosen | overrides))

    def check(self, count: int, dim: int) -> None:
        """Refuses settings that ScaNN would not survive with `count` vectors of `dim` dimensions.

        Raises:
          ValueError: names the field and its range.
        """
        ranges = {
            "leaves": (0, count),
            "leaves_to_search": (1, self.leaves) if self.leaves else (0, 0),
            "dims_per_block": (0, dim if count >= CODES else 0),
            "reorder": (0, np.iinfo(np.int32).max),
            "training_sample": (max(self.leaves, CODES if self.dims_per_block else 1), np.iinfo(np.int32).max),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(
                    f"ScannSettings.{name} = {value!r}; for {count} vectors of {dim} it lies in {low}..{high}"
                )
        if self.soar and not self.leaves:
            raise ValueError("ScannSettings.soar needs a tree with second leaves: set leaves, or soar to 0")
        if not 0 <= self.soar <= 10:
            raise ValueError(f"ScannSettings.soar = {self.soar}; it lies in 0..10")
        if self.reorder_dtype not in REORDER_DTYPES:
            raise ValueError(f"ScannSettings.reorder_dtype = {self.reorder_dtype!r}; choose from {REORDER_DTYPES}")
        if not -1 < self.anisotropic_threshold < 1:
            raise ValueError(
                f"ScannSettings.anisotropic_threshold = {self.anisotropic_threshold}; it lies between -1 and 1"
            )
        if self.reorder and not self.dims_per_block:
            raise ValueError("ScannSettings.reorder needs codes to reorder: set dims_per_block, or reorder to 0")


class ScannSearcher:
    """A ScaNN index over rows 0..N-1; make it with `build` or `load`.

    Attributes:
      count: N.
      dim: D.
      settings: what it was built with.

    Raises:
      ValueError: fewer threads than one.
    """

    def __init__(self, scann_searcher: Any, count: int, dim: int, settings: ScannSettings, threads: int | None = None):
        threads = available_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads must be 1 or more, not {threads}")
        scann_searcher.set_num_threads(threads)
        self._scann, self._threads = scann_searcher, threads
        self.count, self.dim, self.settings = count, dim, settings

    @classmethod
    def build(
        cls, vectors: Float[np.ndarray, "N D"], settings: ScannSettings | None = None, threads: int | None = None
    ) -> ScannSearcher:
        """Builds an index; with a tree this takes minutes for millions of vectors.

        Args:
          vectors: converted to float32; a float32 memory map is used as it is, and ScaNN keeps a copy of its own.
          settings: None derives them from N.
          threads: of training and search; None takes what the process may use. Training adds up in an order that
          depends on it, so that trees and codes differ a little.

        Raises:
          ValueError: vectors that `check_vectors` refuses, settings out of range, threads < 1.
          ImportError: ScaNN is not installed.
        """
        check_vectors(vectors)
        count, dim = vectors.shape
        settings = ScannSettings.derive(count) if settings is None else settings
        settings.check(count, dim)
        threads = available_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads must be 1 or more, not {threads}")
        pybind, reorder_types = _scann()
        builder = pybind.builder(np.ascontiguousarray(vectors, np.float32), min(10, count), "dot_product")
        builder.set_n_training_threads(threads)
        sample = min(settings.training_sample, count)
        if settings.leaves:
            second = {"soar_lambda": settings.soar, "overretrieve_factor": OVERRETRIEVE} if settings.soar else {}
            builder.tree(settings.leaves, settings.leaves_to_search, training_sample_size=sample, **second)
        if settings.dims_per_block:
            threshold = settings.anisotropic_threshold
            builder.score_ah(settings.dims_per_block, threshold, training_sample_size=sample)
        else:
            builder.score_brute_force()
        if settings.reorder:
            builder.reorder(settings.reorder, quantize=getattr(reorder_types, settings.reorder_dtype.upper()))
        return cls(builder.build(), count, dim, settings, threads)

    def search(self, queries: Float[np.ndarray, "B D"], k: int) -> Int32[np.ndarray, "B k"]:
        """See `Searcher.search`. A tree may find fewer than k although N >= k; then -1 stands for the rest."""
        queries = check_queries(queries, k, self.dim)
        if not len(queries):
            return np.zeros((0, k), np.int32)
        rows, scores = self._search(queries, min(k, self.count))
        rows = np.where(np.isfinite(scores) & (rows < self.count), rows.astype(np.int64), NO_PASSAGE)
        return pad_rows_found(rows, k)

    def _search(self, queries: Float32[np.ndarray, "B D"], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Raw rows and scores, k <= N."""
        settings = self.settings
        kwargs = {"final_num_neighbors": k}
        if settings.reorder:
            kwargs["pre_reorder_num_neighbors"] = min(max(settings.reorder, 4 * k), self.count)
        if settings.leaves:  # enough leaves to hold twice the candidates, whatever was set
            candidates = kwargs.get("pre_reorder_num_neighbors", k)
            enough = math.ceil(2 * candidates * settings.leaves / self.count)
            kwargs["leaves_to_search"] = min(max(settings.leaves_to_search, enough), settings.leaves)
        if self._threads == 1 or len(queries) == 1:  # threads share a batch by queries, not by vectors
            return self._scann.search_batched(queries, **kwargs)
        batch_size = min(LARGEST_BATCH, math.ceil(len(queries) / self._threads))
        return self._scann.search_batched_parallel(queries, batch_size=batch_size, **kwargs)

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes ScaNN's files and `searcher.json` into a directory, which is made and may be moved afterwards."""
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._scann.serialize(str(directory), relative_path=True)
        about = {"count": self.count, "dim": self.dim, "settings": dataclasses.asdict(self.settings)}
        (directory / ABOUT).write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: str | pathlib.Path, expected_count: int, threads: int | None = None) -> ScannSearcher:
        """Reads what `save` wrote.

        Raises:
          FileNotFoundError: no searcher there.
          ValueError: files that are not whole, not of one index, or not of `expected_count` rows; build it again.
          ImportError: ScaNN is not installed.
        """
        directory = pathlib.Path(directory)
        if not (directory / ABOUT).is_file():
            raise FileNotFoundError(f"{directory}: no ScaNN searcher there; build the index again")
        try:
            about = json.loads((directory / ABOUT).read_text("utf-8"))
            count, dim, settings = about["count"], about["dim"], ScannSettings(**about["settings"])
            settings.check(count, dim)
            if count != expected_count:
                raise ValueError(f"built over {count} vectors, expected {expected_count}")
            _check_files(directory, count, dim, 2 if settings.soar else 1)
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            raise ValueError(
                f"{directory}: not a ScaNN searcher for this index ({error}); build the index again"
            ) from error
        searcher = _scann()[0].load_searcher(str(directory), assets_backcompat_shim=False)
        if searcher.size() != count:
            raise ValueError(
                f"{directory}: ScaNN holds {searcher.size()} vectors, expected {count}; build the index again"
            )
        return cls(searcher, count, dim, settings, threads)


def _check_files(directory: pathlib.Path, count: int, dim: int, leaves_of_row: int) -> None:
    """Looks at the files before ScaNN does; arrays are mapped, not read."""
    if (directory / "scann_docids.pkl").exists():  # load_searcher would unpickle it
        raise ValueError("scann_docids.pkl is a pickle, which could run code, and no part of an index")
    assets = re.findall(r'asset_path: "(.*)"', (directory / "scann_assets.pbtxt").read_text("utf-8"))
    for name in ("scann_config.pb", *assets):
        if pathlib.PurePath(name).name != name or not (directory / name).is_file():
            raise ValueError(f"{name} is missing or lies elsewhere")
    for path in sorted(directory.glob("*.npy")):
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape if path.stat().st_size > 128 else (0,)
        tokens = path.name.endswith("_to_token.npy")
        per_row = tokens or path.name.endswith(("dataset.npy", "dataset_soar.npy"))
        rows = count * leaves_of_row if tokens else count
        if per_row and (shape[0] != rows or (path.name == "dataset.npy" and shape[1:] != (dim,))):
            raise ValueError(f"{path.name} has the shape {shape}, expected {rows} rows of {dim}")


def available_threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _scann() -> tuple[Any, Any]:
    """ScaNN's pybind module and its enum of dtypes, imported late: it has wheels for Linux only."""
    try:
        from scann.scann_ops.py import scann_ops_pybind
        from scann.scann_ops.py.scann_builder import ReorderType
    except ImportError as error:
        raise ImportError('ScaNN is not installed here (pip install scann, on Linux); use backend="exact"') from error
    return scann_ops_pybind, ReorderType
