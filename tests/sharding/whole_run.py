"""Trains in stages, each of which goes on from the checkpoint of the one before, and evaluates; one of the processes.

python whole_run.py FOLDER WORKDIR STEPS...     FOLDER holds passages.jsonl and questions.jsonl

Ends as train.py does: what stops a stage decides about the exit code.
"""

import sys

from rag_jax import sharding
from rag_jax.config import Config, finalise, update
from rag_jax.evaluation.run import evaluate_runs
from rag_jax.evaluation.validation import validation_figures
from rag_jax.training.loop import trained_params
from rag_jax.training.recipes import run_recipe

SETTINGS = {
    "k": 2,
    "data.dataset": "files",
    "data.max_passage_tokens": 45,
    "data.max_source_tokens": 64,
    "data.max_target_tokens": 8,
    "model.dropout": 0.0,
    "index.backend": "exact",
    "optimizer.learning_rate": 1e-3,
    "optimizer.schedule": "constant",
    "optimizer.warmup_steps": 0,
    "train.batch_size": 16,
    "train.log_every": 1,
    "train.checkpoint_every": 2,
    "train.validation_questions": 5,
    "train.keep_best": 1,
    "eval.batch_size": 12,
    "eval.max_questions": 20,
    "sharding.params": "fsdp",
    "sharding.min_elements": 1,
}


def main(folder, workdir, *stages):
    sharding.start()
    paths = {
        name: f"{folder}/{'passages' if name == 'passages_path' else 'questions'}.jsonl"
        for name in ("passages_path", "questions_path", "eval_questions_path", "validation_questions_path")
    }
    for steps in map(int, stages):
        values = SETTINGS | {f"data.{name}": path for name, path in paths.items()} | {"train.steps": steps}
        code = run_recipe(finalise(update(Config(), values)), workdir, validate=validation_figures)
        if code:
            sys.exit(code)
    evaluate_runs(workdir, trained_params)


if __name__ == "__main__":
    main(*sys.argv[1:])
