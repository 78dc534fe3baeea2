"""HOST. Vectors of a fixed collection, kept beside the encoder that made them, so that nobody waits for them."""

from __future__ import annotations

import pathlib

import numpy as np
from jaxtyping import Float, Float32
from safetensors import SafetensorError, safe_open

from rag_jax.models.weights import save_tensors


def save_vectors(path: str | pathlib.Path, vectors: Float[np.ndarray, "N D"], *, passages: str, encoder: str) -> None:
    """Writes vectors as float16, with the fingerprints of what they were made of and by.

    Args:
      path: the file to make.
      vectors: in the order of the passages.
      passages: `PassageTable.fingerprint`.
      encoder: `embeddings.fingerprint` of the encoder's parameters.
    """
    rounded = np.ascontiguousarray(vectors, np.float16)
    save_tensors(path, {"vectors": rounded}, {"passages": passages, "encoder": encoder})


def load_vectors(path: str | pathlib.Path, *, passages: str, encoder: str) -> Float32[np.ndarray, "N D"] | None:
    """The vectors in such a file; None if there is none, or its fingerprints are others: then they are to be made.

    Raises:
      ValueError: not a whole file.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            if file.metadata() != {"passages": passages, "encoder": encoder}:
                return None
            return file.get_tensor("vectors").astype(np.float32)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); install the package again") from error
