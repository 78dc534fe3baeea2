"""HOST. Passages and their vectors, searched by inner product: embed, build, open, search."""

from rag_jax.index.backends import BACKENDS, measure_recall
from rag_jax.index.baselines import Baseline, GoldSearcher, RandomSearcher
from rag_jax.index.bm25 import Bm25Searcher, Bm25Settings
from rag_jax.index.change import add_passages, delete_passages, swap_index
from rag_jax.index.device_searcher import (
    DeviceSearcher,
    DeviceSettings,
    abstract_index,
    abstract_rows,
    device_index,
    device_rows,
)
from rag_jax.index.embeddings import embed, fingerprint
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.footprint import Estimate, estimate
from rag_jax.index.kept_vectors import load_vectors, save_vectors
from rag_jax.index.live import LiveIndex
from rag_jax.index.manifest import IndexMismatch, Manifest, Recall
from rag_jax.index.protocol import NO_PASSAGE, Found, Searcher, TextSearcher, check_queries, check_vectors
from rag_jax.index.resume import build_resumable
from rag_jax.index.scann import ScannSearcher, ScannSettings
from rag_jax.index.store import Index, build_index, open_index
from rag_jax.index.verify import Check, verify_index

__all__ = [
    "BACKENDS",
    "NO_PASSAGE",
    "Baseline",
    "Bm25Searcher",
    "Bm25Settings",
    "Check",
    "DeviceSearcher",
    "DeviceSettings",
    "Estimate",
    "ExactSearcher",
    "Found",
    "GoldSearcher",
    "Index",
    "IndexMismatch",
    "LiveIndex",
    "Manifest",
    "RandomSearcher",
    "Recall",
    "ScannSearcher",
    "ScannSettings",
    "Searcher",
    "TextSearcher",
    "abstract_index",
    "abstract_rows",
    "add_passages",
    "build_index",
    "build_resumable",
    "check_queries",
    "check_vectors",
    "delete_passages",
    "device_index",
    "device_rows",
    "embed",
    "estimate",
    "fingerprint",
    "load_vectors",
    "measure_recall",
    "open_index",
    "save_vectors",
    "swap_index",
    "verify_index",
]
