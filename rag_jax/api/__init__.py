"""HOST. The Python API for notebooks and programs: load a model, ask it.

import rag_jax
rag = rag_jax.load("path/to/run", index="path/to/index")
rag.answer("who is the head of government of Kenya", k=10)
"""

from rag_jax.api.live import ChangingIndex
from rag_jax.api.loading import cache_directory, load
from rag_jax.api.rag import Rag
from rag_jax.api.records import Answered, Retrieved, Scored

__all__ = ["Answered", "ChangingIndex", "Rag", "Retrieved", "Scored", "cache_directory", "load"]
