import os

import numpy as np
import pytest

from rag_jax.index.resume import build_resumable
from rag_jax.index.store import build_index, open_index
from rag_jax.types import Passage

PASSAGES = [Passage(f"p{n}", f"Title {n}", f"text {n}") for n in range(23)]
ENCODER = "e" * 64


def vectors_of(some):
    return np.array([[int(p.id[1:]), 1.0, len(p.text)] for p in some], np.float32)


class Encoder:
    """Fails at the n-th call, as often as it is built to."""

    def __init__(self, fails_at=None):
        self.seen, self.calls, self.fails_at = [], 0, fails_at

    def __call__(self, some):
        self.calls += 1
        if self.calls == self.fails_at:
            raise KeyboardInterrupt
        self.seen += [p.id for p in some]
        return vectors_of(some)


def build(directory, encoder, passages=PASSAGES, **options):
    chosen = {"encoder_fingerprint": ENCODER, "backend": "exact", "shard_rows": 5} | options
    return build_resumable(directory, iter(passages), encoder, **chosen)


def interrupted(directory, at, **options):
    with pytest.raises(KeyboardInterrupt):
        build(directory, Encoder(fails_at=at), **options)


def test_a_build_goes_on_where_it_stopped_and_no_shard_is_done_twice(tmp_path):
    interrupted(tmp_path / "i", 4)
    assert not (tmp_path / "i").exists()
    encoder, progress = Encoder(), []
    index = build(tmp_path / "i", encoder, progress=lambda done, count: progress.append((done, count)))
    assert encoder.seen == [p.id for p in PASSAGES[15:]]
    assert progress == [(15, 23), (20, 23), (23, 23)]
    np.testing.assert_array_equal(index.vectors, vectors_of(PASSAGES))
    assert list(index.passages) == PASSAGES
    assert os.listdir(tmp_path) == ["i"]


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_fingerprint": "0" * 64},
        {"passages": [*PASSAGES[:-1], Passage("p22", "", "other")]},
        {"passages": PASSAGES[:20]},
        {"shard_rows": 4},
        {"made_with": {"max_passage_tokens": 256}},
    ],
)
def test_the_shards_of_another_job_are_not_taken_over(tmp_path, options):
    interrupted(tmp_path / "i", 4, made_with={"max_passage_tokens": 128})
    encoder = Encoder()
    options = {"made_with": {"max_passage_tokens": 128}} | options
    passages = options.get("passages", PASSAGES)
    index = build(tmp_path / "i", encoder, **options)
    assert encoder.seen == [p.id for p in passages]
    np.testing.assert_array_equal(index.vectors, vectors_of(passages))


def test_a_damaged_shard_is_done_again(tmp_path):
    interrupted(tmp_path / "i", 5)
    kept = np.load(tmp_path / ".i.building" / "vectors.npy", mmap_mode="r+")
    kept[7, 1] = 2.0
    kept.flush()
    with (tmp_path / ".i.building" / "done.txt").open("a") as journal:
        journal.write("4 12ab")  # torn
    encoder = Encoder()
    index = build(tmp_path / "i", encoder)
    assert encoder.seen == [p.id for p in (*PASSAGES[5:10], *PASSAGES[20:])]
    np.testing.assert_array_equal(index.vectors, vectors_of(PASSAGES))


def test_what_is_in_the_way_is_found_before_the_work(tmp_path):
    build_index(tmp_path / "i", PASSAGES, vectors_of(PASSAGES), encoder_fingerprint=ENCODER, backend="exact")
    encoder = Encoder()
    with pytest.raises(FileExistsError, match="exists already"):
        build(tmp_path / "i", encoder)
    assert not encoder.calls
    assert build(tmp_path / "i", encoder, PASSAGES[:9], overwrite=True).manifest.count == 9


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_index_is_found_before_the_work_and_nobody_is_sent_in_circles(tmp_path, overwrite):
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "thesis.txt").write_text("mine")
    encoder = Encoder()
    with pytest.raises(FileExistsError, match=r"no index .*never overwritten; choose another") as refused:
        build(tmp_path / "i", encoder, overwrite=overwrite)
    assert "--overwrite" not in str(refused.value)
    assert not encoder.calls
    with pytest.raises(FileNotFoundError, match=r"no index there.*move it away or choose another place, then make one"):
        open_index(tmp_path / "i")
    assert sorted(os.listdir(tmp_path)) == ["i"]


def test_what_killed_builds_left_goes_when_a_build_starts_again(tmp_path):
    interrupted(tmp_path / "i", 4)
    for place in (tmp_path / ".i.building" / ".passages.123-0123abcd", tmp_path / ".i.importing"):
        place.mkdir()
        (place / "records.bin").write_bytes(b"half")
    interrupted(tmp_path / "i", 1)
    assert os.listdir(tmp_path) == [".i.building"]
    assert sorted(os.listdir(tmp_path / ".i.building")) == ["done.txt", "job.json", "passages", "vectors.npy"]


def test_settings_may_follow_from_the_number_of_passages(tmp_path):
    started = []
    index = build(
        tmp_path / "i",
        None,
        backend="bm25",
        settings=lambda count: started.append(("settings", count)),
        started=lambda count: started.append(("started", count)),
    )
    assert started == [("started", 23), ("settings", 23)]
    assert index.search_texts(["text 7"], 1).rows.shape == (1, 1)


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        (None, {}, "need an encoder"),
        (Encoder(), {"shard_rows": 0}, "shard_rows"),
        (lambda some: np.full((len(some), 3), np.nan), {}, "holds nan"),
        (lambda some: np.ones((1, 3)), {}, "for 5 passages"),
        (Encoder(), {"backend": "faiss"}, "no index backend"),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, encoder, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "i", encoder, **options)
    assert not (tmp_path / "i").exists()
