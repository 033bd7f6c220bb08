"""Run a model: compiled graphs, the KV cache, and continuous batching of many sequences in a separate thread.

Names are imported on first use, since other processes than an engine's need only its messages.
"""

from typing import TYPE_CHECKING

from pumice.lazy import lazy_names

if TYPE_CHECKING:
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

_HOMES = {
    "client": ["EngineClient", "EngineLink"],
    "engine": ["Engine"],
    "generation": ["Generation"],
    "messages": ["EngineFinishReason", "Request", "Snapshot", "Timings"],
    "prepare": ["Preparer"],
    "runner": ["Runner"],
    "thread": ["EngineThread"],
}

__getattr__ = lazy_names(__name__, _HOMES)
