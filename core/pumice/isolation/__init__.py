"""Work that may crash, hang or exhaust memory, in a pool of worker processes: templates, grammars, native parsers."""

from pumice.isolation.limits import Limits, measure
from pumice.isolation.pool import WorkerPool

__all__ = ["Limits", "WorkerPool", "measure"]
