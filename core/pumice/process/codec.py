"""Messages between processes as bytes: MessagePack of typed messages, checked against their types when they arrive.

Nothing is unpickled: bytes become the classes named here, or an error. A message is an array of its class's name and
its fields. Of the types that MessagePack lacks, paths are bytes, arrays their shape and float32 numbers, configurations
their layers, and errors the name of a class of ``pumice.errors`` and its arguments.
"""

from __future__ import annotations

import inspect
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

import pumice.errors
from pumice.config import Config, Layer, merge_layers
from pumice.engine.messages import Add, Command, Count, Event, Facts, Message, Name, Output
from pumice.errors import EngineError, PumiceError, RequestError
from pumice.process.header import MAX_HEADER_BYTES, Header

MAX_BYTES: Final = 16 << 20  # of a message, unless an answer that was asked for is larger
MAX_LOADING_BYTES: Final = MAX_HEADER_BYTES + MAX_BYTES  # of one before the engine is loaded
MAX_COMMAND_BYTES: Final = 64 << 20  # of a command: a prompt of twelve million tokens
_MAX_TEXT = 1 << 16  # characters of an error or a line of a log

T = TypeVar("T")


class Load(Message, frozen=True):
    """The first command: the file, its settings, and what the process tells of itself; ``level`` of what it logs."""

    path: Path
    config: Config
    name: str
    command: str
    level: int


class Loading(Message, frozen=True):
    """Steps of loading that are done, of all."""

    done: Count
    total: Count


class Alive(Message, frozen=True):
    """A sign of life while the model is loaded."""


class Loaded(Message, frozen=True):
    """The engine takes commands from now on."""

    facts: Facts
    header: Header | None = None  # None: the file is where the other end can read it


class Summarized(Message, frozen=True):
    """What a reader says of each file: its header, without lists; None: it cannot be read."""

    header: Header | None


class NotLoaded(Message, frozen=True):
    """The last message of a process whose model cannot be had."""

    error: Exception


class Logged(Message, frozen=True):
    """A line for the log."""

    level: Annotated[int, Meta(ge=0, le=100)]
    message: Annotated[str, Meta(max_length=_MAX_TEXT)]


class Step(Message, frozen=True):
    """The events of a step."""

    events: Sequence[Event]


Report = Loading | Alive | Loaded | Summarized | NotLoaded | Logged | Step
"""What an engine's process says."""


class CodecError(EngineError):
    """Bytes from another process that are no message."""


class _Fault(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An error of Pumice's."""

    kind: Name
    arguments: list[str | int | float | bool | None]
    prompt_index: Count | None = None


class _Array(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    shape: Annotated[list[Count], Meta(max_length=4)]
    data: bytearray


_ERRORS = dict(inspect.getmembers(pumice.errors, inspect.isclass))


class Codec(Generic[T]):
    """Encodes messages, and decodes those of the union ``kind``."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)

    def encode(self, message: T) -> bytes:
        """Raises TypeError, ValueError, OverflowError or RecursionError for values that are no plain data."""
        return self._encoder.encode(message)

    def decode(self, data: bytes | bytearray | memoryview) -> T:
        """Raises CodecError."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, PumiceError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise CodecError(f"a message from another process is wrong: {one_line(str(error))}") from None


def encode_command(command: Command) -> bytes:
    """Raises RequestError for one with values that cannot be sent: no plain data, or too much of it."""
    try:
        if isinstance(command, Add):
            for name, value in dict(command.request.sampling).items():
                _check_plain(name, value)
            without_prompt = msgspec.structs.replace(command, request=replace(command.request, prompt=[]))
            COMMANDS.decode(COMMANDS.encode(without_prompt))  # an error here, not the end of the engine there
        data = COMMANDS.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError, CodecError) as error:
        raise RequestError(f"the request cannot be sent to the engine's process: {one_line(str(error))}") from None
    if len(data) > MAX_COMMAND_BYTES:
        raise RequestError(f"the request has {len(data)} bytes, at most {MAX_COMMAND_BYTES} can be sent to the engine")
    return data


def encode_events(events: Sequence[Event]) -> Iterator[bytes]:
    """The events of a step, in more than one message where they are large."""
    data = _STEPS.encode(Step(events))
    parts = _halves(events) if len(data) > MAX_BYTES else []
    if not parts:
        yield data
    for part in parts:
        yield from encode_events(part)


def decode_events(data: bytes) -> Sequence[Event]:
    """Raises CodecError."""
    return _STEPS.decode(data).events


def decode_command(data: bytes) -> Load | Command:
    """Raises CodecError. A function, which Ray pickles by its name; a codec would be pickled with what it holds."""
    return COMMANDS.decode(data)


def encode_report(report: Report) -> bytes:
    """What an engine says of its loading, for ``decode_facts``."""
    return REPORTS.encode(report)


def decode_facts(data: bytes) -> Facts:
    """The facts of an engine that says whether it is loaded. Raises what loading raised, or CodecError."""
    report = REPORTS.decode(data)
    if isinstance(report, NotLoaded):
        raise report.error
    if not isinstance(report, Loaded):
        raise CodecError(f"the engine says {type(report).__name__} before it is loaded")
    return report.facts


def portable(error: Exception) -> PumiceError:
    """An error as another process gets it: one of ``pumice.errors``, with plain arguments."""
    if isinstance(error, MemoryError):
        return EngineError("out of memory: give it a smaller n_ctx, n_parallel or model")
    if not isinstance(error, PumiceError):
        return EngineError(one_line(f"{type(error).__name__}: {error}"))
    return _error_of(_fault_of(error))


def one_line(text: str) -> str:
    """A text of another process for a log or an error: no control characters, no lone surrogates, not endless."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:_MAX_TEXT])
    return shown[:_MAX_TEXT]


def _halves(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Events in two parts; tokens of one event are parted too. Nothing if that cannot be done."""
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
    """Raise RequestError for a value of a request that is no number, text, list or map of such."""
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


# --- types that MessagePack lacks


def _to_plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _Array(list(value.shape), bytearray(value.astype("<f4", copy=False).tobytes()))
    if isinstance(value, Exception):
        return _fault_of(value)
    if isinstance(value, Path):
        return os.fsencode(value)
    if isinstance(value, Config):
        return [(layer.source, layer.data) for layer in value.layers]
    if isinstance(value, (Mapping, Sequence)):
        return dict(value) if isinstance(value, Mapping) else list(value)
    raise TypeError(f"a {type(value).__name__} is no plain data")


def _from_plain(kind: Any, value: Any) -> Any:
    return _READERS[get_origin(kind) or kind](value)


def _array_of(value: object) -> NDArray[np.float32]:
    plain = msgspec.convert(value, _Array)
    if math.prod(plain.shape) * 4 != len(plain.data):
        raise ValueError("an array has another shape than numbers")
    return np.frombuffer(plain.data, "<f4").reshape(plain.shape)


def _config_of(value: object) -> Config:
    layers = [Layer(*each) for each in msgspec.convert(value, list[tuple[str, dict[str, Any]]])]
    if not layers:
        raise ValueError("a configuration has no layers")
    return merge_layers(layers)


def _path_of(value: object) -> Path:
    return Path(os.fsdecode(msgspec.convert(value, bytes)))


def _fault_of(error: Exception) -> _Fault:
    if not isinstance(error, PumiceError):
        error = portable(error)
    kind = next(each for each in type(error).__mro__ if _ERRORS.get(each.__name__) is each)
    known = kind is type(error) and all(isinstance(each, (str, int, float, type(None))) for each in error.args)
    arguments = list(error.args) if known else [str(error)]
    index = error.prompt_index if isinstance(error, RequestError) else None
    return _Fault(kind.__name__, [one_line(each) if isinstance(each, str) else each for each in arguments], index)


def _error_of(value: object) -> PumiceError:
    fault = msgspec.convert(value, _Fault)
    kind = _ERRORS.get(fault.kind)
    if kind is None or not issubclass(kind, PumiceError):
        raise ValueError(f"there is no error {fault.kind[:60]!r}")
    error: PumiceError = kind(*(one_line(each) if isinstance(each, str) else each for each in fault.arguments))
    str(error)  # raises where the arguments are not those of the class
    if isinstance(error, RequestError):
        error.prompt_index = fault.prompt_index
    return error


_READERS: dict[Any, Callable[[Any], object]] = {
    Path: _path_of,
    Config: _config_of,
    Exception: _error_of,
    np.ndarray: _array_of,
}

COMMANDS: Final[Codec[Load | Command]] = Codec(Load | Command)
REPORTS: Final[Codec[Report]] = Codec(Report)
_STEPS: Final[Codec[Step]] = Codec(Step)
