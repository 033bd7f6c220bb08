"""Running a model: the compiled graph, the KV cache, and many sequences generated at once."""

from pumice.engine.engine import Engine
from pumice.engine.runner import Runner
from pumice.engine.sequence import FinishReason, Request, Sequence, Timings

__all__ = ["Engine", "FinishReason", "Request", "Runner", "Sequence", "Timings"]
