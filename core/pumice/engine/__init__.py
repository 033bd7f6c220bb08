"""Run a model: compiled graphs, the KV cache, and continuous batching of many sequences in a separate thread."""

from pumice.engine.client import EngineClient, EngineLink
from pumice.engine.engine import Engine
from pumice.engine.generation import Generation
from pumice.engine.messages import EngineFinishReason, Request, Snapshot, Timings
from pumice.engine.prepare import Preparer
from pumice.engine.runner import Runner
from pumice.engine.thread import EngineThread

__all__ = [
    "Engine",
    "EngineClient",
    "EngineFinishReason",
    "EngineLink",
    "EngineThread",
    "Generation",
    "Preparer",
    "Request",
    "Runner",
    "Snapshot",
    "Timings",
]
