"""A model whose engine is in a process of its own: what happens to that one does not happen to this one."""

from pumice.process.linked import LinkedModel
from pumice.process.model import ProcessModel

__all__ = ["LinkedModel", "ProcessModel"]
