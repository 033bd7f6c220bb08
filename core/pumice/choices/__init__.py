"""Tasks with several answers: which does a model find the most probable? HellaSwag, Winogrande, multiple choice."""

from pumice.choices.score import Score, measure
from pumice.choices.tasks import KINDS, Task, read_tasks

__all__ = ["KINDS", "Score", "Task", "measure", "read_tasks"]
