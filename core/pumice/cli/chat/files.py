"""Files of conversations. A confined chat leaves them to a process that was forked before.

The chat is not trusted once it has read a model, and may ask for any path. The other process therefore returns nothing
but messages of conversations, without other keys, the names of kept ones, and files that begin as images, sounds or
videos do. It writes nothing but conversations: to new files with the suffix `.json`, and over files that hold a
conversation. Its errors never quote the content of a file.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import json
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pumice.cache_files import read_regular, replace_file
from pumice.chat.media import part_kind
from pumice.chat.messages import Message, ToolCall, read_messages
from pumice.cli.chat.history import sessions_folder
from pumice.errors import PumiceError
from pumice.media.audio import Audio, is_sound
from pumice.media.encoded import MAX_BYTES
from pumice.media.images import Image
from pumice.media.videos import Video, is_video
from pumice.spawning.fork import detach, fork_helper

if TYPE_CHECKING:
    from pumice.architecture import MediaKind

SUFFIX = ".json"

_IMAGE = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF.{4}WEBP|GIF8[79]a|BM.{4}\0\0\0\0|II\*\0|MM\0\*", re.DOTALL
)  # how the files of images begin
_LENGTH = struct.Struct("<I")
_MAX_NAMES = 100  # conversations that are listed
_MAX_BYTES = 1 << 28  # maximum size of a file, and of a message between the processes


def read_conversation(path: Path) -> list[dict[str, Any]]:
    """Return the messages of a file that ``write_conversation`` wrote, or of a JSON list. Raises PumiceError."""
    if _keeper is None:
        return _read(path)
    messages = _keeper.ask("read", path)
    if not isinstance(messages, list):
        raise PumiceError(f"{path}: the process that keeps conversations returned no messages")
    return messages


def conversation_names() -> list[str]:
    """Return the names of the latest conversations in the folder of kept ones, the latest first. Raises PumiceError."""
    names = _list_names() if _keeper is None else _keeper.ask("names", sessions_folder())
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def read_image(path: Path) -> Image:
    """Return an image to show to the model. Raises PumiceError for a file that does not begin as one."""
    return Image.from_base64(_media(path, "image"))


def read_sound(path: Path) -> Audio:
    """Return a sound to play to the model. Raises PumiceError for a file that does not begin as one."""
    return Audio.from_base64(_media(path, "sound"))


def read_video(path: Path) -> Video:
    """Return a video to show to the model. Raises PumiceError for a file that does not begin as one."""
    return Video.from_base64(_media(path, "video"))


def _media(path: Path, task: str) -> str:
    data = _BEGINNINGS[task].read(path) if _keeper is None else _keeper.ask(task, path)
    if not isinstance(data, str):
        raise PumiceError(f"{path}: the process that reads files returned no {task}")
    return data


def write_conversation(path: Path, messages: Sequence[dict[str, Any]]) -> None:
    """Write messages to a JSON file atomically. Raises PumiceError."""
    if _keeper is None:
        _write(path, messages)
    else:
        _keeper.ask("write", path, messages)


@contextlib.contextmanager
def kept_by_other_process() -> Iterator[None]:
    """Fork the process that reads and writes conversations. Call this before another thread starts."""
    global _keeper
    helper = fork_helper(_serve)
    _keeper = Keeper(helper.channel)
    try:
        yield
    finally:
        _keeper.close()
        _keeper = None
        helper.end()


class Keeper:
    """The connection to the process that reads and writes conversations.

    A thread exchanges requests and answers, one pair after the other. Ctrl-C during ``ask`` abandons an answer, but
    interrupts no exchange, so that a later request never receives the answer to an earlier one.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._exchanges = ThreadPoolExecutor(1, "conversations")
        self._lock = threading.Lock()  # Ctrl-C while the pool starts its thread makes it start a second one later

    def ask(self, task: str, path: Path, *arguments: object) -> object:
        """Return the result of a request. Raises PumiceError, also that of the other process."""
        try:
            future = self._exchanges.submit(self._exchange, _pack([task, os.fspath(path), *arguments]))
            try:
                answer = future.result()
            finally:
                future.cancel()  # after Ctrl-C, if an earlier exchange has not ended
        except (OSError, ValueError) as error:
            raise PumiceError(f"{path}: the process that keeps conversations does not answer: {error}") from None
        match answer:
            case [result, ""]:
                return result
            case [_, str(problem)]:
                raise PumiceError(problem)
        raise PumiceError(f"{path}: the process that keeps conversations has ended; restart the chat to use files")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # ends an exchange that waits
        self._exchanges.shutdown()
        self._channel.close()

    def _exchange(self, request: bytes) -> Any:
        with self._lock:
            self._channel.sendall(request)
            try:
                return _receive(self._channel)
            except ValueError:
                self._channel.shutdown(socket.SHUT_RDWR)  # where the next answer begins is unknown
                raise


_keeper: Keeper | None = None


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(read_regular(path, _MAX_BYTES))
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list):
            raise ValueError("no list of messages")
        return _checked([_with_marks(message) for message in messages])
    except OSError as error:
        raise PumiceError(f"{path}: cannot be read: {error.strerror}") from None
    except (PumiceError, ValueError, RecursionError):
        problem = "is not a conversation; expected JSON as /save writes it, or a list of messages with roles"
        raise PumiceError(f"{path}: {problem}") from None


def media_mark(kind: MediaKind) -> str:
    """Return the text that stands for an image, a sound or a video in kept messages, such as ``[image]``."""
    return f"[{kind}]"


def _with_marks(message: Any) -> Any:
    """Return a message of a file with marks in place of its images, sounds and videos."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [{"type": "text", "text": media_mark(kind)} if (kind := part_kind(part)) else part for part in content]
    return {**message, "content": parts}


def _list_names() -> list[str]:
    try:
        times = {file.stem: file.stat().st_mtime for file in sessions_folder().glob(f"*{SUFFIX}")}
    except OSError:
        return []
    return heapq.nlargest(_MAX_NAMES, times, key=lambda name: times[name])


@dataclass(frozen=True)
class _Beginning:
    """The first bytes of files of one kind, and the kind's name in errors."""

    matches: Callable[[bytes], object]
    kind: str

    def read(self, path: Path) -> str:
        """Return a file that begins so, in base64. Raises PumiceError for any other file."""
        try:
            content = read_regular(path, _MAX_BYTES)
        except OSError as error:
            raise PumiceError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise PumiceError(f"{path}: {error}") from None
        if len(content) > MAX_BYTES:
            raise PumiceError(f"{path}: more than {MAX_BYTES >> 20} MiB; use a smaller file")
        if not self.matches(content):
            raise PumiceError(f"{path}: not a {self.kind}")
        return base64.b64encode(content).decode()


_BEGINNINGS = {
    "image": _Beginning(_IMAGE.match, "PNG, JPEG, WebP, GIF, BMP or TIFF image"),
    "sound": _Beginning(is_sound, "WAV, FLAC, OGG, MP3 or AIFF sound"),
    "video": _Beginning(is_video, "MP4, MOV, WebM or Matroska video"),
}


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the keys of ``Message.to_dict`` alone. Raises RequestError for an invalid message."""
    return [_message(message).to_dict() for message in (read_messages(messages) if messages else [])]


def _message(read: Mapping[str, Any]) -> Message:
    """Return a message that ``read_messages`` returned."""
    calls = [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in read.get("tool_calls", ())
    ]
    tool_call_id, name = (value if isinstance(value := read.get(key), str) else "" for key in ("tool_call_id", "name"))
    return Message(read["content"], read.get("reasoning", ""), calls, read["role"], tool_call_id, name)


def _write(path: Path, messages: Sequence[dict[str, Any]]) -> None:
    text = json.dumps({"messages": _checked(messages)}, ensure_ascii=False, indent=2) + "\n"
    content = text.encode("utf-8", "replace")  # half a surrogate pair becomes "?"
    try:
        if path.exists():
            _check_replaced(path)
        elif path.suffix != SUFFIX:
            problem = f"conversations are written to files that end in {SUFFIX}; use {path.name}{SUFFIX}"
            raise PumiceError(f"{path}: {problem}")
        replace_file(path, content)
    except OSError as error:
        raise PumiceError(f"{path}: cannot be written: {error.strerror}") from None
    except ValueError:
        raise PumiceError(f"{path}: cannot be written: the path is not valid") from None


def _check_replaced(path: Path) -> None:
    try:
        _read(path)
    except PumiceError:
        raise PumiceError(f"{path}: exists, and is not a conversation; choose another name") from None


def _serve(channel: socket.socket) -> NoReturn:
    """Read and write conversations until the other end closes ``channel``."""
    try:
        detach(channel)
        while request := _receive(channel):
            channel.sendall(_answer(request))
    except (OSError, ValueError):
        pass  # the other end is gone, or sent what a chat does not
    finally:
        os._exit(0)


def _answer(request: Any) -> bytes:
    """Return the packed result, or the message of an error, of a request, which is not trusted."""
    try:
        match request:
            case ["read", str(path)]:
                return _pack([_read(Path(path)), ""])
            case ["image" | "sound" | "video" as kind, str(path)]:
                return _pack([_BEGINNINGS[kind].read(Path(path)), ""])
            case ["names", _]:
                return _pack([_list_names(), ""])
            case ["write", str(path), list(messages)]:
                _write(Path(path), messages)
                return _pack([None, ""])
        return _pack([None, "not a request of a chat"])
    except PumiceError as error:
        return _pack([None, str(error)])
    except Exception as error:  # its text may quote the file; this process goes on whatever it was asked
        return _pack([None, f"the process that keeps conversations failed: {type(error).__name__}"])


def _pack(value: object) -> bytes:
    """Return a message between the processes. Raises ValueError if it is too large."""
    data = json.dumps(value).encode()
    if len(data) > _MAX_BYTES:
        raise ValueError(f"the message has {len(data)} bytes, but the limit is {_MAX_BYTES}")
    return _LENGTH.pack(len(data)) + data


def _receive(channel: socket.socket) -> Any:
    """Return the next value; None at the end. Raises OSError, or ValueError for one that is too long or not JSON."""
    head = _receive_bytes(channel, _LENGTH.size)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head.ljust(_LENGTH.size, b"\0"))
    if length > _MAX_BYTES:
        raise ValueError(f"a message of {length} bytes, but the limit is {_MAX_BYTES}")
    data = _receive_bytes(channel, length)
    if len(data) < length:
        raise ValueError("a message was cut short")
    return json.loads(data)


def _receive_bytes(channel: socket.socket, length: int) -> bytes:
    """Return ``length`` bytes, or fewer at the end."""
    data = bytearray()
    while len(data) < length and (piece := channel.recv(min(length - len(data), 1 << 20))):
        data += piece
    return bytes(data)
