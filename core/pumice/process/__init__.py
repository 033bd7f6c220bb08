"""Run a model's engine in a process of its own, whose failures do not affect this process."""

from pumice.process.linked import LinkedModel
from pumice.process.model import ProcessModel

__all__ = ["LinkedModel", "ProcessModel"]
