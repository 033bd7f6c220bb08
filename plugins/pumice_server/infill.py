"""llama-server's fill-in-the-middle: ``POST /infill`` completes what stands between a prefix and a suffix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pumice_server.body import Body
from pumice_server.errors import bad_request
from pumice_server.models import service_of
from pumice_server.native import answer
from pumice_server.prompts import fill_in, fim_marks, mixed_tokens
from pumice_server.service import Service

_PROJECT, _FILE = "myproject\n", "filename\n"  # as llama-server calls what no request names
_BETWEEN = "\n\n--- snippet ---\n\n"  # files, for models without a token that separates them


async def infill(request: Request) -> Response:
    body = await Body.read(request)
    service = await service_of(request, body.first("model"))
    fim_marks(service)
    for name in ("input_prefix", "input_suffix"):
        if name not in body.fields:
            raise bad_request(f"{name} is required")
    return await answer(request, service, body, [await body.aside(infill_tokens, body, service)])


def infill_tokens(body: Body, service: Service) -> list[int]:
    """Other files, then the marks of prefix, suffix and middle with what belongs to each, as Qwen 2.5 Coder has it."""
    fim = service.model.tokenizer.fim
    separator = fim.get("fim_sep")
    tokens = [fim["fim_rep"], *service.tokens_of(_PROJECT, False, False)] if "fim_rep" in fim else []
    for name, text in _extra(body):
        title = service.tokens_of(f"{name}\n" if separator is not None else _BETWEEN, False, False)
        tokens += [*([separator] if separator is not None else []), *title]
        tokens += service.tokens_of(text, False, False)
    if separator is not None:
        tokens += [separator, *service.tokens_of(_FILE, False, False)]
    prefix, suffix = [_part(body, name, service) for name in ("input_prefix", "input_suffix")]
    prompt = service.tokens_of(body.get("prompt", str, ""), False, True)
    return [*tokens, *fill_in(service, prefix, suffix, prompt)]


def _part(body: Body, name: str, service: Service) -> list[int]:
    """Text, or a list of texts and token ids; spellings of special tokens in it are text."""
    given: Any = body.fields[name]
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list) or not all(type(part) in (int, str) for part in parts):
        raise bad_request(f"{name} must be text, or a list of texts and token ids")
    return mixed_tokens(parts, service, add_special=False, parse_special=False)


def _extra(body: Body) -> list[tuple[str, str]]:
    """Other files, each with its name."""
    given = body.get("input_extra", list, [])
    files = []
    for each in given:
        name, text = (each.get("filename", "tmp"), each.get("text")) if isinstance(each, Mapping) else ("", None)
        if not isinstance(name, str) or not isinstance(text, str):
            raise bad_request("input_extra: expected objects with a filename and a text")
        files.append((name, text))
    return files
