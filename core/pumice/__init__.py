"""Run GGUF language models on any GPU with a Vulkan driver and on any CPU.

Everything public is here; it is imported on first use, so that ``import pumice`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.api import load_process, load_tokenizer, plan
    from pumice.chat import ChatCompletion, ChatDelta, Message, Tool, ToolCall, Usage
    from pumice.demo import demo_model_path
    from pumice.engine.messages import Logprobs, PreparedText, Request, Snapshot
    from pumice.errors import (
        BackendError,
        ConfigError,
        ConvertError,
        EngineDiedError,
        EngineError,
        EngineKilledError,
        GGUFError,
        HubError,
        MediaError,
        MissingPackageError,
        ModelClosedError,
        ModelError,
        NoChatTemplateError,
        OutOfMemoryError,
        PluginError,
        PromptTooLongError,
        PumiceError,
        QuantizeError,
        QueueFullError,
        RequestError,
        RequestTimeoutError,
        SandboxError,
        TokenizerError,
        TooExpensiveError,
        UnavailableError,
        UnknownModelError,
    )
    from pumice.frontend.speech import FramePiece, SpeechPiece
    from pumice.loading import load
    from pumice.mcp import mcp_tools
    from pumice.media.audio import Audio
    from pumice.media.images import Image
    from pumice.media.videos import Video
    from pumice.model import Model
    from pumice.model_files.summary import Summary
    from pumice.options import ChatOptions, EngineOptions, GenerateOptions
    from pumice.planning import ModelPlan
    from pumice.speech.voice import Voice
    from pumice.streaming.chat import AsyncChatStream, ChatStream, PreparedChat
    from pumice.streaming.pieces import Completion, Piece
    from pumice.streaming.stream import AsyncStream, Stream
    from pumice.timings import Timings
    from pumice.transcription import Segment, Transcript, Word

    __version__: str

__all__ = [
    "AsyncChatStream",
    "AsyncStream",
    "Audio",
    "BackendError",
    "ChatCompletion",
    "ChatDelta",
    "ChatOptions",
    "ChatStream",
    "Completion",
    "ConfigError",
    "ConvertError",
    "EngineDiedError",
    "EngineError",
    "EngineKilledError",
    "EngineOptions",
    "FramePiece",
    "GGUFError",
    "GenerateOptions",
    "HubError",
    "Image",
    "Logprobs",
    "MediaError",
    "Message",
    "MissingPackageError",
    "Model",
    "ModelClosedError",
    "ModelError",
    "ModelPlan",
    "NoChatTemplateError",
    "OutOfMemoryError",
    "Piece",
    "PluginError",
    "PreparedChat",
    "PreparedText",
    "PromptTooLongError",
    "PumiceError",
    "QuantizeError",
    "QueueFullError",
    "Request",
    "RequestError",
    "RequestTimeoutError",
    "SandboxError",
    "Segment",
    "Snapshot",
    "SpeechPiece",
    "Stream",
    "Summary",
    "Timings",
    "TokenizerError",
    "TooExpensiveError",
    "Tool",
    "ToolCall",
    "Transcript",
    "UnavailableError",
    "UnknownModelError",
    "Usage",
    "Video",
    "Voice",
    "Word",
    "__version__",
    "demo_model_path",
    "load",
    "load_process",
    "load_tokenizer",
    "mcp_tools",
    "plan",
]

_HOMES = {
    "chat": ["ChatCompletion", "ChatDelta", "Message", "Tool", "ToolCall", "Usage"],
    "streaming.chat": ["AsyncChatStream", "ChatStream", "PreparedChat"],
    "engine.messages": ["Logprobs", "PreparedText", "Request", "Snapshot"],
    "timings": ["Timings"],
    "demo": ["demo_model_path"],
    "media.audio": ["Audio"],
    "media.videos": ["Video"],
    "media.images": ["Image"],
    "mcp": ["mcp_tools"],
    "model": ["Model"],
    "options": ["ChatOptions", "EngineOptions", "GenerateOptions"],
    "streaming.pieces": ["Completion", "Piece"],
    "streaming.stream": ["AsyncStream", "Stream"],
    "transcription": ["Segment", "Transcript", "Word"],
    "model_files.summary": ["Summary"],
    "loading": ["load"],
    "api": ["load_process", "load_tokenizer", "plan"],
    "frontend.speech": ["FramePiece", "SpeechPiece"],
    "speech.voice": ["Voice"],
    "planning.plan": ["ModelPlan"],
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pumice' has no attribute {name!r}")
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("pumice")
    else:
        home = next((module for module, names in _HOMES.items() if name in names), "errors")
        value = getattr(importlib.import_module(f"pumice.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
