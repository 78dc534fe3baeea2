"""Runs that nobody trained: answers with passages, priors and posteriors of any size, for reports and comparisons."""

import numpy as np

from rag_jax.config import Config, finalise, update
from rag_jax.evaluation.report.runs_page import ReportedRun
from rag_jax.types import Answer, Passage, Question, Source

HOSTILE = 'a </script><script>document.title="taken"</script> <!-- <img src=x onerror=alert(1)> & \u2028 "b" of Ostia'
TOKENS = ("ĠOst", "ia", "ĠÃ©", "</s>")


def questions(count):
    return [Question(f"q/{n}?", f"which port is number {n}", (f"Ostia {n}",), (f"p{n}-0",)) for n in range(count)]


def answers(asked, k, variant, rng, text=lambda n, i: f"Ostia {n} lies by the sea, said number {i}. {HOSTILE}"):
    """Right for every other question; the first passage holds the answer."""
    found = []
    for n, question in enumerate(asked):
        prior, posterior = np.sort(rng.dirichlet(np.ones(k)))[::-1], rng.dirichlet(np.ones(k))
        by_token = rng.dirichlet(np.ones(k), len(TOKENS)).T.tolist() if variant == "token" else [()] * k
        sources = [
            Source(Passage(f"p{n}-{i}", f"Port {i}", text(n, i)), float(prior[i]), float(posterior[i]), tuple(shares))
            for i, shares in enumerate(by_token)
        ]
        answer = question.answers[0] if n % 2 == 0 else HOSTILE
        found.append(Answer(answer, float(np.log(0.25)), tuple(sources), TOKENS))
    return found


def reported(name, count=6, k=12, variant="token", **more):
    """A run of that many questions."""
    asked, rng = questions(count), np.random.default_rng(0)
    given = answers(asked, k, variant, rng, **more)
    figures = {
        "em": 0.5,
        "questions": count,
        "recall_at_1": 0.25,
        "recall_over_k": [{"k": 1, "answer": 0.25, "gold": 0.5}, {"k": 2, "answer": 0.75, "gold": 0.75}],
        "em_over_k": [{"k": 1, "em": 0.4}, {"k": 10, "em": 0.6}],
    }
    return ReportedRun(name, finalise(update(Config(), {"variant": variant})), asked, given, figures)


def closed_book(name, count=6):
    """A run without passages."""
    asked = questions(count)
    config = finalise(update(Config(), {"retriever": "none"}))
    return ReportedRun(name, config, asked, [Answer("", -1.0, (), TOKENS)] * count, {"em": 0.0, "questions": count})
