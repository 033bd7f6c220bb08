"""llama-server's fill-in-the-middle: ``POST /infill`` completes what stands between a prefix and a suffix."""

from __future__ import annotations

from starlette.requests import Request

from pumice_server.interface import Service, Streaming, Whole, check_fills_in, fill_in, mixed_tokens, service_of
from pumice_server.protocols.llama_server.answer_types import NativeChunk, NativeCompletions
from pumice_server.protocols.llama_server.bodies import InfillBody
from pumice_server.protocols.llama_server.completion import answer

_PROJECT, _FILE = "myproject\n", "filename\n"  # llama-server's names, since requests have none
_BETWEEN = "\n\n--- snippet ---\n\n"  # files, for models without a token that separates them


async def infill(request: Request, body: InfillBody) -> Whole[NativeCompletions] | Streaming[NativeChunk]:
    """Fill in text between a prefix and a suffix, in the format of llama-server."""
    service = await service_of(request, body.model)
    check_fills_in(service)
    return await answer(request, service, body, [await body.aside(infill_tokens, body, service)])


def infill_tokens(body: InfillBody, service: Service) -> list[int]:
    """Return the tokens of other files, then of prefix, suffix and middle, in Qwen 2.5 Coder's order."""
    fim = service.model.tokenizer.fim
    separator = fim.get("fim_sep")
    tokens = [fim["fim_rep"], *service.tokens_of(_PROJECT, False, False)] if "fim_rep" in fim else []
    for file in body.input_extra or ():
        title = service.tokens_of(f"{file.filename}\n" if separator is not None else _BETWEEN, False, False)
        tokens += [*([separator] if separator is not None else []), *title]
        tokens += service.tokens_of(file.text, False, False)
    if separator is not None:
        tokens += [separator, *service.tokens_of(_FILE, False, False)]
    prefix, suffix = [_tokens(part, service) for part in (body.input_prefix, body.input_suffix)]
    prompt = service.tokens_of(body.prompt, False, True)
    return [*tokens, *fill_in(service, prefix, suffix, prompt)]


def _tokens(part: str | list[int | str], service: Service) -> list[int]:
    """Return the tokens of texts and token ids. Spellings of special tokens are text."""
    parts = [part] if isinstance(part, str) else part
    return mixed_tokens(parts, service, add_special=False, parse_special=False)
