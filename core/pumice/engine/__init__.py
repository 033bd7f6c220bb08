"""Running a model: the compiled graph, the KV cache, and many sequences generated at once, in a thread of their own."""

from pumice.engine.client import EngineClient, EngineLink
from pumice.engine.engine import Engine
from pumice.engine.generation import Generation
from pumice.engine.messages import FinishReason, Request, Snapshot, Timings
from pumice.engine.prepare import Preparer
from pumice.engine.runner import Runner
from pumice.engine.thread import EngineThread

__all__ = [
    "Engine",
    "EngineClient",
    "EngineLink",
    "EngineThread",
    "FinishReason",
    "Generation",
    "Preparer",
    "Request",
    "Runner",
    "Snapshot",
    "Timings",
]
