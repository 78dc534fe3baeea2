"""Search by every backend as the index grows: queries per second, recall, growth. One JSON object per result.

    python benchmarks/retrieval.py             N = 10,000, 100,000, 1,000,000 of 128 dimensions; 4 GB, about 15 minutes
    python benchmarks/retrieval.py --quick     N = 1,000 and 10,000, under a minute
    python benchmarks/retrieval.py --dim=768 --counts 10000 100000

Vectors have unit length and lie in N / 100 clusters; two members of one have the cosine .64, about that of a question
and its passage under MiniLM. A query is a further member of a cluster. All backends answer the same queries, in
alternation: a round takes each of them once, and what is reported are medians and ratios of the pairs, so that a busy
machine slows all sides alike. BM25 has texts of its own: 60 words drawn by Zipf's law, asked for by six words of one of
them; its recall is of that one, among the ten best. Device search runs on the CPU here, which has no fast bfloat16.

Of the lines with metric `queries/s`, `peer` is exact search in the same run and `ratio` how many times faster; those
with `seconds growth` say how much longer a query takes in an index of ten times the size, beside exact search's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rag_jax.index import Bm25Searcher, DeviceSearcher, DeviceSettings, ExactSearcher, ScannSearcher, ScannSettings
from rag_jax.types import Passage

K = 10
QUERIES = 512
TO_CENTRE = 0.8  # cosine of a vector and its cluster's centre; .64 between two members
MEMBERS = 100  # vectors of a cluster
LONG_ENOUGH = 0.2  # seconds; shorter passes are repeated
WORDS, TEXT_WORDS, ASKED_WORDS = 50_000, 60, 6
MOST_TEXTS = 100_000  # beyond it only making the texts takes longer

Search = Callable[[], np.ndarray]


def show(**result: Any) -> None:
    """One result as a line of JSON."""
    rounded = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in result.items()}
    print(json.dumps(rounded), flush=True)


def clustered(count: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [N, D] and queries [QUERIES, D], float32, of unit length."""
    rng = np.random.default_rng(seed)
    centres = _unit(rng.standard_normal((max(1, count // MEMBERS), dim), np.float32))

    def members(number: int) -> np.ndarray:
        noise = _unit(rng.standard_normal((number, dim), np.float32))
        chosen = centres[rng.integers(len(centres), size=number)]
        return _unit(TO_CENTRE * chosen + (1 - TO_CENTRE**2) ** 0.5 * noise)

    vectors = np.concatenate([members(min(100_000, count - at)) for at in range(0, count, 100_000)])
    return vectors, members(QUERIES)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def texts(count: int, seed: int = 0) -> tuple[list[Passage], list[str], np.ndarray]:
    """Passages of made-up words, questions, and the row of the passage that each question is made of."""
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.zipf(1.2, (count, TEXT_WORDS)), WORDS)
    passages = [Passage(str(row), "", " ".join(f"w{word}" for word in line)) for row, line in enumerate(words.tolist())]
    rows = rng.integers(count, size=QUERIES)
    asked = [rng.choice(words[row], ASKED_WORDS, replace=False).tolist() for row in rows]
    return passages, [" ".join(f"w{word}" for word in line) for line in asked], rows


def recall(found: np.ndarray, wanted: np.ndarray) -> float:
    """Share of the wanted rows [B, n] among the found ones [B, K]."""
    return float(np.mean([np.isin(want, got).mean() for want, got in zip(wanted, found, strict=True)]))


def timed(search: Search, repeats: int) -> float:
    """Seconds of one pass over all queries."""
    start = time.perf_counter()
    for _ in range(repeats):
        search()
    return (time.perf_counter() - start) / repeats


def backends(count: int, dim: int) -> tuple[dict[str, Search], dict[str, float]]:
    """A search for each backend over one set, its programs compiled, and its recall."""
    vectors, queries = clustered(count, dim)
    searchers: dict[str, Any] = {"exact": ExactSearcher(vectors)}
    start = time.perf_counter()
    searchers["scann"] = ScannSearcher.build(vectors)
    settings = ScannSettings.derive(count)
    show(
        case=f"scann n={count}",
        metric="seconds to build",
        ours=time.perf_counter() - start,
        bound=None,
        ratio=None,
        leaves=settings.leaves,
        leaves_to_search=settings.leaves_to_search,
        reorder=settings.reorder,
    )
    for dtype in ("float32", "bfloat16", "int8"):
        searchers[f"device {dtype}"] = DeviceSearcher(vectors, DeviceSettings(dtype))
    searches: dict[str, Search] = {
        name: lambda searcher=searcher: searcher.search(queries, K) for name, searcher in searchers.items()
    }
    wanted = searches["exact"]()
    recalls = {name: recall(search(), wanted) for name, search in searches.items()}
    if count <= MOST_TEXTS:
        passages, questions, rows = texts(count)
        bm25 = Bm25Searcher.build(passages)
        searches["bm25"] = lambda: bm25.search_texts(questions, K).rows
        recalls["bm25"] = recall(searches["bm25"](), rows[:, None])
    return searches, recalls


def measure(counts: list[int], dim: int, rounds: int) -> None:
    """Times all sets in the same rounds, so that growth too is a ratio of pairs, and reports them."""
    searches: dict[tuple[str, int], Search] = {}
    recalls: dict[tuple[str, int], float] = {}
    for count in counts:
        found = backends(count, dim)
        for into, of_backend in zip((searches, recalls), found, strict=True):
            into.update({(name, count): value for name, value in of_backend.items()})
    repeats = {key: max(1, round(LONG_ENOUGH / timed(search, 1))) for key, search in searches.items()}
    passes: dict[tuple[str, int], list[float]] = {key: [] for key in searches}
    for _ in range(rounds):
        for key, search in searches.items():
            passes[key].append(timed(search, repeats[key]))

    def speed(key: tuple[str, int]) -> float:
        return QUERIES / statistics.median(passes[key])

    def paired(above: tuple[str, int], below: tuple[str, int]) -> float:
        return statistics.median(a / b for a, b in zip(passes[above], passes[below], strict=True))

    for name, count in searches:
        key, exact, case = (name, count), ("exact", count), f"{name} n={count}"
        show(case=case, metric="queries/s", ours=speed(key), peer=speed(exact), ratio=paired(exact, key), dim=dim)
        show(case=case, metric=f"recall@{K}", ours=recalls[key], bound=1.0, ratio=recalls[key])
        if (name, count // 10) in searches:
            growth, peer = (paired((of, count), (of, count // 10)) for of in (name, "exact"))
            show(case=case, metric="seconds growth", ours=growth, peer=peer, ratio=growth / peer)


def main() -> None:
    """All sets, in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 vectors, three rounds")
    options = parser.parse_args()
    counts, rounds = ([1000, 10_000], 3) if options.quick else (options.counts, options.rounds)
    measure(counts, options.dim, rounds)


if __name__ == "__main__":
    main()
