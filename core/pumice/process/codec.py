"""Encode messages between processes as MessagePack, and check their types when they arrive.

Nothing is unpickled: bytes are decoded to the classes defined here, or raise an error. A message is an array of its
class's name and its fields. Types that MessagePack lacks are converted: paths to bytes, arrays to their shape and
float32 values, configurations to their layers, errors to the name of a class of ``pumice.errors`` and its arguments.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar, get_origin

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from pumice.config import Config, Layer, merge_layers
from pumice.embeddings import Count
from pumice.engine.messages import (
    Add,
    Command,
    EngineMessage,
    Event,
    Facts,
    Name,
    Output,
    media_of,
)
from pumice.errors import EngineError, OutOfMemoryError, PlainArguments, PumiceError, RequestError, from_plain, to_plain
from pumice.process.header import MAX_HEADER_BYTES, Header

MAX_BYTES: Final = 16 << 20  # of a message, unless a larger answer is owed
MAX_LOADING_BYTES: Final = MAX_HEADER_BYTES + MAX_BYTES  # of a message before the engine is loaded
MAX_COMMAND_BYTES: Final = 128 << 20  # of a command beside the rows of images: pixels, a prompt of many million tokens
_MAX_TEXT = 1 << 16  # characters of an error or a line of a log

T = TypeVar("T")


class Load(EngineMessage, frozen=True):
    """The first command: the file, the layers of its configuration, and the log level of the process."""

    path: Path
    layers: Annotated[tuple[Layer, ...], Meta(min_length=1)]
    name: str
    command: str
    level: int

    @property
    def config(self) -> Config:
        """The configuration. Raises ConfigError for layers that an engine of this version does not know."""
        return merge_layers(self.layers)


def make_load(path: Path, config: Config, name: str, command: str) -> Load:
    """Return the command to load a model, with the log level of this process."""
    return Load(path, config.layers, name or str(path), command, logging.getLogger("pumice").getEffectiveLevel())


class Loading(EngineMessage, frozen=True):
    """Progress of loading: steps done, and total steps."""

    done: Count
    total: Count


class Alive(EngineMessage, frozen=True):
    """A sign of life while the model is loading."""


class Opened(EngineMessage, frozen=True):
    """The header of the model, sent before its weights are loaded. It is missing if the other end can read the file."""

    header: Header


class Loaded(EngineMessage, frozen=True):
    """The engine is ready for commands."""

    facts: Facts


HEADERS, VOCABULARIES = "headers", "vocabularies"
"""Requests to a reader: the headers of files, or the problems of their vocabularies."""


class Summarized(EngineMessage, frozen=True):
    """The answer of a reader about one file.

    Attributes:
        header: Its header, without lists; None if it cannot be read, or was not asked for.
        problem: Why the tokenizer of its vocabulary cannot be made.
    """

    header: Header | None
    problem: Name = ""


class NotLoaded(EngineMessage, frozen=True):
    """The last message of a process that failed to load its model."""

    error: Exception


class Logged(EngineMessage, frozen=True):
    """A log record."""

    level: Annotated[int, Meta(ge=0, le=100)]
    message: Annotated[str, Meta(max_length=_MAX_TEXT)]


class StepEvents(EngineMessage, frozen=True):
    """The events of one step."""

    events: Sequence[Event]


Report = Loading | Alive | Opened | Loaded | Summarized | NotLoaded | Logged | StepEvents
"""Messages from an engine's process."""


class CodecError(EngineError):
    """Raised for invalid messages of another process."""


class _Fault(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The encoding of a PumiceError."""

    kind: Name
    arguments: PlainArguments
    prompt_index: Count | None = None


class _Array(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    shape: Annotated[list[Count], Meta(max_length=4)]
    data: bytearray


class Codec(Generic[T]):
    """Encodes messages, and decodes messages of the union ``kind``."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)

    def encode(self, message: T) -> bytes:
        """Encode a message. Raises TypeError, ValueError, OverflowError or RecursionError unless it is plain data."""
        return self._encoder.encode(message)

    def decode(self, data: bytes | bytearray | memoryview) -> T:
        """Decode a message. Raises CodecError if it is invalid."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, PumiceError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise CodecError(f"invalid message from another process: {one_line(str(error))}") from None


def encode_command(command: Command, media_bytes: int = 0) -> bytes:
    """Encode a command. Raises RequestError if it is too large or has values that are not plain data.

    ``media_bytes``: maximum bytes of rows of media, ``Facts.media_bytes``, beside those of any command.
    """
    try:
        if isinstance(command, Add):
            for name in ("logits_processor", "stopping_criteria", "on_layer"):
                if getattr(command.request, name) is not None:
                    raise RequestError(
                        f"{name}: functions need an engine in this process; load the model with pumice.load"
                    )
            for name, value in dict(command.request.sampling).items():
                _check_plain(name, value)
            options = msgspec.structs.replace(command, request=replace(command.request, prompt=[], media=()))
            COMMANDS.decode(COMMANDS.encode(options))  # raises here rather than ending the engine
        data = COMMANDS.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError, CodecError) as error:
        raise RequestError(f"the request cannot be sent to the engine's process: {one_line(str(error))}") from None
    most = MAX_COMMAND_BYTES + (media_bytes if media_of(command) else 0)
    if len(data) > most:
        raise RequestError(f"the request has {len(data)} bytes, but the limit is {most}")
    return data


def encode_events(events: Sequence[Event]) -> Iterator[bytes]:
    """Yield the messages for the events of a step; large ones are split."""
    data = _STEPS.encode(StepEvents(events))
    parts = _halves(events) if len(data) > MAX_BYTES else []
    if not parts:
        yield data
    for part in parts:
        yield from encode_events(part)


def decode_events(data: bytes) -> Sequence[Event]:
    """Decode the events of a step. Raises CodecError."""
    return _STEPS.decode(data).events


def decode_command(data: bytes) -> Load | Command:
    """Decode a command.

    Raises CodecError. Ray pickles this function by name; it would pickle a codec with its content.
    """
    return COMMANDS.decode(data)


def encode_report(report: Report) -> bytes:
    """Encode an engine's report about loading, for ``decode_facts``."""
    return REPORTS.encode(report)


def decode_facts(data: bytes) -> Facts:
    """Return the facts of a loaded engine. Raises the error of loading, or CodecError."""
    report = REPORTS.decode(data)
    if isinstance(report, NotLoaded):
        raise report.error
    if not isinstance(report, Loaded):
        raise CodecError(f"the engine sent {type(report).__name__} before it was loaded")
    return report.facts


def portable(error: Exception) -> PumiceError:
    """Convert an error for another process: to a class of ``pumice.errors`` with plain arguments."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError("out of memory: reduce n_ctx or n_parallel, or choose a smaller model")
    if not isinstance(error, PumiceError):
        return EngineError(one_line(f"{type(error).__name__}: {error}"))
    return _error_of(_fault_of(error))


def one_line(text: str) -> str:
    """Sanitize a text of another process: one line without control characters and lone surrogates, shortened."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:_MAX_TEXT])
    return shown[:_MAX_TEXT]


def _halves(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Split events into two parts, and the tokens of a single event; empty if that is impossible."""
    middle = len(events) // 2
    if middle:
        return [events[:middle], events[middle:]]
    (event,) = events
    middle = len(event.tokens) // 2 if isinstance(event, Output) else 0
    if not isinstance(event, Output) or not middle:
        return []
    places = slice(None, middle), slice(middle, None)
    return [
        [Output(event.id, event.tokens[part], event.texts[part], event.logprobs and event.logprobs[part])]
        for part in places
    ]


def _check_plain(name: str, value: object) -> None:
    """Raise RequestError for a value of a request that does not consist of numbers, texts, lists and maps."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_plain(name, key)
            _check_plain(name, inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_plain(name, inner)
    elif not isinstance(value, (str, bytes, int, float, np.generic, type(None))):
        kind = type(value).__name__
        raise RequestError(f"{name}: a {kind} cannot be sent to the engine's process; give numbers, texts, lists, maps")


# --- conversion of types that MessagePack lacks


def _to_plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value, "<f4").reshape(-1)
        return [list(value.shape), flat.view(np.uint8).data]  # as an _Array, without a copy
    if isinstance(value, Exception):
        return _fault_of(value)
    if isinstance(value, Path):
        return os.fsencode(value)
    if isinstance(value, (Mapping, Sequence)):
        return dict(value) if isinstance(value, Mapping) else list(value)
    raise TypeError(f"a {type(value).__name__} is not plain data")


def _from_plain(kind: Any, value: Any) -> Any:
    reader = _READERS.get(get_origin(kind) or kind)
    if reader is None:
        raise ValueError(f"a {kind.__name__} cannot come from another process")
    return reader(value)


def _array_of(value: object) -> NDArray[np.float32]:
    plain = msgspec.convert(value, _Array)
    if math.prod(plain.shape) * 4 != len(plain.data):
        raise ValueError("the shape of an array does not match its values")
    return np.frombuffer(plain.data, "<f4").reshape(plain.shape)


def _path_of(value: object) -> Path:
    return Path(os.fsdecode(msgspec.convert(value, bytes)))


def _fault_of(error: Exception) -> _Fault:
    if not isinstance(error, PumiceError):
        error = portable(error)
    kind, arguments = to_plain(error)
    index = error.prompt_index if isinstance(error, RequestError) else None
    return _Fault(kind, [one_line(item) if isinstance(item, str) else item for item in arguments], index)


def _error_of(value: object) -> PumiceError:
    fault = msgspec.convert(value, _Fault)
    error = from_plain(fault.kind, [one_line(item) if isinstance(item, str) else item for item in fault.arguments])
    if isinstance(error, RequestError):
        error.prompt_index = fault.prompt_index
    return error


_READERS: dict[Any, Callable[[Any], object]] = {
    Path: _path_of,
    Exception: _error_of,
    np.ndarray: _array_of,
}

COMMANDS: Final[Codec[Load | Command]] = Codec(Load | Command)
REPORTS: Final[Codec[Report]] = Codec(Report)
_STEPS: Final[Codec[StepEvents]] = Codec(StepEvents)
