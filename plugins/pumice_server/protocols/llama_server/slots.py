"""Endpoints for llama-server's slots: the number of running sequences, and the tokens of requests with a slot.

A slot holds no cache of its own, since requests share the cache. Its file has its tokens; the cache of their whole
blocks lies in the folder ``cache_saved`` of the engine, from which restoring loads it, or computes what is not there.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

import pumice
from pumice.plugin.unstable import show_value
from pumice_server.interface import FILES, Service, SlotText, UnwritableError, bad_request, service_of, snapshot_of
from pumice_server.protocols.llama_server.answer_types import SlotResult, SlotState
from pumice_server.protocols.llama_server.bodies import SlotBody

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_SAVED = re.compile(rb'{"model": ?("(?:[^"\\\\]|\\\\.)*"), ?"tokens": ?\[')  # the beginning of a file
_BEGINNING = 1 << 14  # bytes read to find the model of a file
_MAX_FILE = 64 << 20  # bytes
_NO_WAITING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # do not block on pipes


async def slots(request: Request) -> list[SlotState]:
    """List the slots: as many as sequences run at once. No text is shown.

    ``?model=``: Name of the model. ``?fail_on_no_slot=``: Answer 503 if no slot is free.
    """
    if not request.app.state.settings.slots:
        raise HTTPException(501, "/slots is not served: the server was started with --no-slots")
    service = await service_of(request, request.query_params.get("model"))
    snapshot = await snapshot_of(service.shared)
    busy = snapshot.n_slots - snapshot.n_slots_free
    if busy == snapshot.n_slots and request.query_params.get("fail_on_no_slot"):
        raise HTTPException(503, "no slot is free")
    n_ctx, speculates = service.model.n_ctx, service.model.facts.speculates
    return [
        SlotState(id=i, n_ctx=n_ctx, speculative=speculates, is_processing=i < busy) for i in range(snapshot.n_slots)
    ]


async def act(request: Request, body: SlotBody) -> SlotResult:
    """Save, restore or erase the tokens of a slot and their cache.

    ``?action=``: `save`, `restore` or `erase`. ``?model=``: Name of the model.
    """
    folder: Path | None = request.app.state.settings.slot_folder
    if folder is None:
        raise HTTPException(501, "saving slots is disabled: start the server with --slot-save-path")
    service = await service_of(request, request.query_params.get("model") or body.model)
    slot = _slot(request.path_params["id"], service)
    act = _ACTIONS.get(request.query_params.get("action", ""))
    if act is None:
        raise bad_request(f"action must be {', '.join(_ACTIONS)}")
    return SlotResult(id_slot=slot, **await act(request, service, slot, body))


def _slot(given: str, service: Service) -> int:
    if not given.isascii() or not given.isdigit() or int(given[:9]) >= service.model.config.n_parallel:
        raise bad_request(f"there is no slot {show_value(given)}; the server has {service.model.config.n_parallel}")
    return int(given)


async def _save(request: Request, service: Service, slot: int, body: SlotBody) -> dict[str, Any]:
    name, path = _file(request, body)
    text = service.slots.get((request.state.client, slot), SlotText())
    tokens = list(text.tokens)
    started = time.perf_counter()
    data = orjson.dumps({"model": service.name, "tokens": tokens})
    n_cached = 0
    if tokens:
        await _read_again(service, text)
        try:
            n_cached = await service.save_prompt(tokens, text.salt)
        except pumice.ConfigError:  # the engine has logged the folder and the reason
            raise UnwritableError(
                f"the cache of {name}", "less than 1 GiB of its disk is free, or it cannot be written"
            ) from None
    await FILES(_write, path, data)
    timings = {"save_ms": (time.perf_counter() - started) * 1000}
    facts = {"n_saved": len(tokens), "n_cached": n_cached, "n_written": len(data)}
    return {"filename": name, **facts, "timings": timings}


async def _restore(request: Request, service: Service, slot: int, body: SlotBody) -> dict[str, Any]:
    name, path = _file(request, body)
    started = time.perf_counter()
    data = await FILES(_read, path, name, service.name)
    try:
        tokens = [int(token) for token in orjson.loads(data)["tokens"]]
    except (ValueError, KeyError, TypeError):
        raise bad_request(f"{name} is not a slot saved by this server") from None
    text = SlotText(tokens, request.state.cache_salt)
    n_cached = await _read_again(service, text) if tokens else 0
    service.slots[request.state.client, slot] = text
    timings = {"restore_ms": (time.perf_counter() - started) * 1000}
    facts = {"n_restored": len(tokens), "n_cached": n_cached, "n_read": len(data)}
    return {"filename": name, **facts, "timings": timings}


async def _read_again(service: Service, text: SlotText) -> int:
    """Load or compute the tokens that the cache lacks; return how many it had."""
    options = {"max_tokens": 1, "cache_salt": text.salt}  # without any token nothing would be read
    (done,) = await service.gather(await service.complete([list(text.tokens)], 1, options))
    return done.timings.prompt_cached


async def _erase(request: Request, service: Service, slot: int, body: SlotBody) -> dict[str, Any]:
    return {"n_erased": len(service.slots.pop((request.state.client, slot), SlotText()).tokens)}


_ACTIONS: dict[str, Callable[..., Any]] = {"save": _save, "restore": _restore, "erase": _erase}


def _file(request: Request, body: SlotBody) -> tuple[str, Path]:
    """Return the file's name and path. Each API key has a folder of its own."""
    name = body.filename
    if not _NAME.fullmatch(name):
        raise bad_request("filename must be 1 to 64 letters, digits, dots, - and _, and must not begin with a dot")
    folder: Path = request.app.state.settings.slot_folder
    client = request.state.client[:32]
    return name, folder / client / name if client else folder / name


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically. Raises HTTPException; the previous file stays then."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # clients cannot use this name
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if path.is_dir():
            raise bad_request(f"{path.name} is a folder; choose another filename for the slot") from None
        raise UnwritableError(path.name, error.strerror) from None


def _read(path: Path, name: str, model: str) -> bytes:
    """Read a file of this model. Raises HTTPException."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAITING), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise bad_request(f"{name} is not a regular file")
            beginning = file.read(_BEGINNING)
            saved = _SAVED.match(beginning)
            if not saved:
                raise bad_request(f"{name} is not a slot saved by this server")
            if saved[1] != orjson.dumps(model):
                raise bad_request(f"{name} was saved by another model")
            return beginning + file.read(_MAX_FILE - len(beginning))
    except OSError as error:
        raise bad_request(f"{name}: {error.strerror}") from None
