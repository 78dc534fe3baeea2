"""HOST. Passages and their vectors, searched by inner product: embed, build, open, search."""

from rag_jax.index.backends import BACKENDS, measure_recall
from rag_jax.index.embeddings import embed, fingerprint
from rag_jax.index.exact import ExactSearcher
from rag_jax.index.manifest import IndexMismatch, Manifest, Recall
from rag_jax.index.protocol import NO_PASSAGE, Searcher, check_queries, check_vectors
from rag_jax.index.scann import ScannSearcher, ScannSettings
from rag_jax.index.store import Index, build_index, open_index

__all__ = [
    "BACKENDS",
    "NO_PASSAGE",
    "ExactSearcher",
    "Index",
    "IndexMismatch",
    "Manifest",
    "Recall",
    "ScannSearcher",
    "ScannSettings",
    "Searcher",
    "build_index",
    "check_queries",
    "check_vectors",
    "embed",
    "fingerprint",
    "measure_recall",
    "open_index",
]
