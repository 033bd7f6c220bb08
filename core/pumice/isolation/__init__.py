"""Run work that may crash, hang or exhaust memory (templates, grammars, native parsers) in worker processes."""

from pumice.isolation.limits import CallLimits, measure
from pumice.isolation.pool import WorkerPool

__all__ = ["CallLimits", "WorkerPool", "measure"]
