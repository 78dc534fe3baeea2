import json
import os
import shutil

import numpy as np
import pytest

from rag_jax.index.manifest import IndexMismatch, inventory, read_manifest
from rag_jax.index.store import build_index, open_index
from rag_jax.index.verify import verify_index
from rag_jax.text.table import PassageTable
from rag_jax.types import Passage

COUNT, DIM, ENCODER = 40, 6, "e" * 64
PASSAGES = [Passage(f"p{n}", f"Title {n}", f"text {n}") for n in range(COUNT)]


def embed(some):
    return np.stack([np.random.default_rng(int(p.id[1:])).standard_normal(DIM) for p in some]).astype(np.float32)


@pytest.fixture
def place(tmp_path):
    build_index(tmp_path / "i", PASSAGES, embed(PASSAGES), encoder_fingerprint=ENCODER, backend="exact")
    return tmp_path / "i"


def faults(place, *arguments):
    return {check.name.split()[0]: check.fault for check in verify_index(place, *arguments) if check.fault}


def sign_again(place, **changes):
    """Makes the manifest fit the files, as a careless or malicious hand might."""
    content = json.loads((place / "manifest.json").read_text()) | {"files": inventory(place)} | changes
    (place / "manifest.json").write_text(json.dumps(content))


def test_a_whole_index_passes_every_check(place):
    checks = verify_index(place, embed, ENCODER)
    assert len(checks) == 6
    assert not any(check.fault for check in checks)


def test_words_are_verified_too(tmp_path):
    build_index(tmp_path / "i", PASSAGES, None, encoder_fingerprint="", backend="bm25")
    assert not faults(tmp_path / "i")


def test_a_truncated_vector_file_is_refused_with_what_to_do(place):
    os.truncate(place / "vectors.npy", (place / "vectors.npy").stat().st_size - 8)
    assert "rebuild the index" in faults(place)["manifest,"]
    with pytest.raises(IndexMismatch, match=r"vectors\.npy has \d+ bytes, expected \d+; rebuild the index"):
        open_index(place)
    sign_again(place)
    assert "rebuild the index" in faults(place)["manifest,"]


def test_swapped_passages_are_refused_with_what_to_do(place, tmp_path):
    PassageTable.write(tmp_path / "t", PASSAGES[::-1])
    shutil.rmtree(place / "passages")
    shutil.copytree(tmp_path / "t", place / "passages")
    with pytest.raises(IndexMismatch, match="rebuild the index"):
        open_index(place)
    sign_again(place)
    with pytest.raises(IndexMismatch, match=r"passages [0-9a-f]{12}, the manifest says .*rebuild the index"):
        open_index(place)
    sign_again(place, passages=read_table_fingerprint(place))
    assert list(faults(place, embed, ENCODER)) == ["vectors"]  # all agrees but what the vectors mean


def read_table_fingerprint(place):
    return json.loads((place / "passages" / "table.json").read_text())["fingerprint"]


def test_a_mismatched_encoder_is_refused_with_what_to_do(place):
    found = faults(place, embed, "0" * 64)
    assert "rebuild the index, or load the encoder" in found["manifest,"]


def test_passages_that_are_not_what_their_fingerprint_says_are_found(place):
    raw = (place / "passages" / "records.bin").read_bytes()
    (place / "passages" / "records.bin").write_bytes(raw.replace(b"text 7", b"test 7"))
    sign_again(place)
    assert "another fingerprint" in faults(place)["passages,"]


def test_infinite_vectors_are_found(place):
    vectors = np.load(place / "vectors.npy")
    vectors[3, 2] = np.inf
    np.save(place / "vectors.npy", vectors)
    sign_again(place)
    assert "row 3 holds inf" in " ".join(faults(place).values())


def test_further_files_are_found(place):
    (place / "notes.txt").touch()
    assert "notes.txt" in faults(place)["no"]


def test_where_there_is_no_index_there_is_nothing_to_verify(tmp_path):
    with pytest.raises(FileNotFoundError, match="no index there"):
        verify_index(tmp_path / "i")
    with pytest.raises(FileNotFoundError, match="no index there"):
        verify_index(tmp_path)


def test_a_recall_that_has_fallen_is_found(place):
    said = read_manifest(place).recall
    sign_again(place, recall={"k": said.k, "value": 1.5, "queries": said.queries, "source": said.source})
    assert "recall 1.000 at 10, 1.500 when it was built" in faults(place)["recall"]
