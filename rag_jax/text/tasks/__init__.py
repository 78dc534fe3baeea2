"""HOST. The data sets of the paper, read from the files that their authors publish or from what TFDS prepared of them.

One module a family of formats, and a catalogue that knows which reader takes which file.
"""

from rag_jax.text.tasks.catalogue import TASKS, Task, task_passages, task_questions

__all__ = ["TASKS", "Task", "task_passages", "task_questions"]
