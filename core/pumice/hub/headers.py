"""Headers of the models in a repository of the Hub, read by HTTP ranges; weights are not downloaded."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.config import Config, Layer
from pumice.errors import GGUFError, HubError
from pumice.gguf import GGUFFile
from pumice.gguf.cursor import U32, U64, Cursor, MissingBytesError
from pumice.gguf.parser import MAGIC, ParsedFile, parse_buffer
from pumice.gguf.tensors import ModelTensor, read_tensors
from pumice.hub.abort import Abort
from pumice.hub.choice import ModelFiles, choose, models_in
from pumice.hub.download import content_range
from pumice.hub.locate import cached, resolve_name
from pumice.hub.names import HubName
from pumice.hub.repository import HubFile, cached_files, endpoint, explained, file_url, list_files

if TYPE_CHECKING:
    from pumice.hub.client import HubClient

MOST_BYTES = 64 << 20  # of one header, and of one request
MOST_FILES = 400  # in one repository: quantizations, and their parts
_FIRST = 1 << 20  # bytes of the first request for a header
_MARGIN = 64 << 10  # bytes around the place where the list of tensors is expected

ReadRange = Callable[[int, int, int], bytes]
"""Returns the bytes of a file, by its number, from a start to a stop."""


@dataclass(frozen=True)
class RemoteModels:
    """The models of a repository, and the one that a name selects.

    Attributes:
        name: name of the selected model.
        commit: commit of the files.
        models: all models.
        chosen: the selected one.
        files: the files of all models; their numbers are those of ``ReadRange``.
        options: options of the catalogue's entry.
    """

    name: HubName
    commit: str
    models: tuple[ModelFiles, ...]
    chosen: ModelFiles
    files: tuple[HubFile, ...]
    options: Layer | None = None

    def only_chosen(self) -> RemoteModels:
        """Return the selected model alone."""
        return replace(self, models=(self.chosen,))


def find_remote(model: str | Path, config: Config | None = None, *, always: bool = False) -> RemoteModels | None:
    """Return the repository that the name of a model stands for; None if it stands for anything else.

    Args:
        model: path or name of the model.
        config: configuration with the catalogue; None reads it when a name needs it.
        always: ask the Hub for a model that is on this machine, too, unless HF_HUB_OFFLINE is set.

    Raises:
        HubError: there is no such model, or the Hub cannot be reached.
    """
    name, options = resolve_name(model, config)
    if not isinstance(name, HubName):
        return None
    from huggingface_hub import constants

    if cached(name) and (not always or constants.is_offline_mode()):
        return None
    return _list_models(name, options)


def _list_models(name: HubName, options: Layer | None) -> RemoteModels:
    with _client(name) as client:
        commit, files = list_files(name, client)
    models = models_in(files)
    chosen = choose(name, models)
    if sum(len(model.files) for model in models) > MOST_FILES:
        models = [chosen]
    used = tuple(files[path] for model in models for path in model.files)
    for file in used:
        if file.size is None:
            raise HubError(f"{name}: the Hub does not tell the size of {file.path}")
    return RemoteModels(name, commit, tuple(models), chosen, used, options)


def repository_files(repo: str) -> list[str]:
    """Return the paths of the files of a repository; those on this machine if the Hub cannot be reached.

    Raises HubError if there are none, either.
    """
    name = HubName(repo)
    try:
        with _client(name) as client:
            return [*list_files(name, client)[1]]
    except HubError:
        if files := cached_files(name):
            return [*files]
        raise


@contextmanager
def _client(name: HubName) -> Iterator[HubClient]:
    """Yield a client on behalf of the operator; its errors are HubErrors about ``name``."""
    with explained(str(name)):
        from pumice.hub.client import AllowedHosts, HubClient, origin_of

        with HubClient(AllowedHosts(frozenset([origin_of(endpoint())])), Abort()) as client:
            yield client


def read_range(remote: RemoteModels, number: int, start: int, stop: int) -> bytes:
    """Return bytes of a file of a repository. Raises HubError."""
    file = remote.files[number]
    stop = min(stop, file.size or 0)
    if not 0 <= start < stop <= start + MOST_BYTES:
        raise HubError(f"{file.path}: no bytes {start} to {stop}")
    with _client(remote.name) as client:
        return _receive(client, *file_url(remote.name, remote.commit, file), start, stop)


def _receive(client: HubClient, url: str, headers: Mapping[str, str], start: int, stop: int) -> bytes:
    """Return a range of the content at an address, from whose start a server without ranges sends."""
    from pumice.hub.client import raise_for_status, refuse_encoding

    body = bytearray()
    with client.stream("GET", url, {**headers, "Range": f"bytes={start}-{stop - 1}"}) as response:
        raise_for_status(response)
        refuse_encoding(response)
        begins = 0
        if response.status_code == 206:
            begins = content_range(response.headers.get("Content-Range", ""))
        if response.status_code not in (200, 206) or begins not in (0, start) or stop - begins > MOST_BYTES:
            raise HubError(f"{url}: the server does not send parts of files, which headers are read by")
        for chunk in response.iter_raw():
            client.abort.check()
            body += chunk
            if begins + len(body) >= stop:
                break
    if begins + len(body) < stop:
        raise HubError(f"{url}: the server ended the connection early; try again")
    return bytes(body[start - begins : stop - begins])


def read_models(remote: RemoteModels, read: ReadRange) -> Iterator[tuple[ModelFiles, GGUFFile]]:
    """Yield each model of a repository with its header, the selected one first.

    Files of one repository mostly differ in the list of tensors alone. So the header of the selected model is read
    whole, of the others the list only, at about the same place; a header without it there is read whole, too.

    Raises HubError, and GGUFError for an invalid header of the selected model; other models with one are left out.
    """
    number_of = {file.path: number for number, file in enumerate(remote.files)}
    first: list[_Header] = []
    for model in sorted(remote.models, key=lambda model: model is not remote.chosen):
        numbers = [number_of[path] for path in model.files]
        try:
            headers = [
                _read_header(remote, read, number, first[:1] if i == 0 else []) for i, number in enumerate(numbers)
            ]
        except GGUFError:
            if model is remote.chosen:
                raise
            continue
        first = first or headers
        yield model, _joined(headers)


@dataclass(frozen=True)
class _Header:
    """A parsed header, and the bytes of its list of tensors in the file: ``start`` to ``stop``."""

    parsed: ParsedFile
    start: int
    stop: int


def _joined(headers: Sequence[_Header]) -> GGUFFile:
    """Return the model of the headers of all its parts."""
    parts = [header.parsed for header in headers]
    tensors: dict[str, ModelTensor] = {name: tensor for part in parts for name, tensor in part.tensors.items()}
    n_bytes = sum(part.n_bytes for part in parts)
    return GGUFFile(parts[0].path, parts[0].metadata, tensors, n_bytes, parts[0].version, parts[0].alignment)


def _read_header(remote: RemoteModels, read: ReadRange, number: int, like: Sequence[_Header]) -> _Header:
    file = remote.files[number]
    path, size = Path(file.path), file.size or 0
    for header in like:
        if similar := _read_like(path, size, lambda start, stop: read(number, start, min(stop, size)), header):
            return similar
    end = min(_FIRST, size)
    data = read(number, 0, end) if end else b""
    while True:
        try:
            parsed = parse_buffer(path, _mapped(data), size)
        except MissingBytesError as error:
            if error.end > min(size, MOST_BYTES) or len(data) == size:
                raise GGUFError(f"{path}: the header has more than {MOST_BYTES >> 20} MiB") from None
            end = min(max(error.end, 4 * len(data)), size, MOST_BYTES)
            data += read(number, len(data), end)
            continue
        start, stop = _list_of_tensors(data, parsed)
        return _Header(parsed, start, stop)


def _list_of_tensors(data: bytes, parsed: ParsedFile) -> tuple[int, int]:
    """Return where the list of tensors begins and ends in a header; 0 and 0 without tensors."""
    names = list(parsed.tensors)
    if not names:
        return 0, 0
    return data.rfind(_stored(names[0])), data.rfind(_stored(names[-1])) + len(_stored(names[-1]))


def _stored(name: str) -> bytes:
    raw = name.encode()
    return U64.pack(len(raw)) + raw


def _read_like(path: Path, size: int, read: Callable[[int, int], bytes], like: _Header) -> _Header | None:
    """Return the header of a file that differs from another in its list of tensors only; None if it is not there."""
    fixed = struct.calcsize("<4sIQ")
    window = max(like.start - _MARGIN, 0), min(like.stop + _MARGIN, size)
    if not like.stop or size < like.stop or window[1] - window[0] > MOST_BYTES:
        return None
    head, data = read(0, fixed), read(*window)
    n_tensors = U64.unpack_from(head, len(MAGIC) + U32.size)[0]
    start = data.rfind(_stored(next(iter(like.parsed.tensors))))
    if head[: len(MAGIC)] != MAGIC or n_tensors != len(like.parsed.tensors) or start < 0:
        return None
    cursor = Cursor(path, _mapped(data[start:]), size)
    try:
        tensors = read_tensors(cursor, n_tensors, like.parsed.alignment)
    except GGUFError:
        return None
    if tensors.keys() != like.parsed.tensors.keys():
        return None
    metadata = like.parsed.metadata
    parsed = ParsedFile(path, like.parsed.version, like.parsed.alignment, metadata, tensors, size)
    return _Header(parsed, window[0] + start, window[0] + start + cursor.offset)


def _mapped(data: bytes) -> mmap.mmap:
    buffer = mmap.mmap(-1, max(len(data), 1))
    buffer.write(data)
    return buffer
