"""Run a model: compiled graphs, the KV cache, and continuous batching of many sequences in a separate thread.

Names are imported on first use, since other processes than an engine's need only its messages.
"""

from typing import TYPE_CHECKING

from pumice.lazy import lazy_names

if TYPE_CHECKING:
    from pumice.engine.client import EngineClient as EngineClient, EngineLink as EngineLink
    from pumice.engine.loop.engine import Engine as Engine
    from pumice.engine.loop.thread import EngineThread as EngineThread
    from pumice.engine.messages import (
        EngineFinishReason as EngineFinishReason,
        Request as Request,
        Snapshot as Snapshot,
        Timings as Timings,
    )
    from pumice.engine.placement.runner import Runner as Runner
    from pumice.engine.requests.generation import Generation as Generation
    from pumice.engine.requests.prepare import Preparer as Preparer

_HOMES = {
    "client": ["EngineClient", "EngineLink"],
    "loop.engine": ["Engine"],
    "requests.generation": ["Generation"],
    "messages": ["EngineFinishReason", "Request", "Snapshot", "Timings"],
    "requests.prepare": ["Preparer"],
    "placement.runner": ["Runner"],
    "loop.thread": ["EngineThread"],
}

__getattr__ = lazy_names(__name__, _HOMES)
