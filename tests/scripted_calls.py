"""Models that write given texts; for chats with tools, each text answers the results so far."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pumice
from family_templates import FAMILIES
from gguf_files import tiny_llama
from pumice.plugin import Candidates, ChatFormat, MaskSampler, SamplerContext, Selector, hookimpl


class Writer(MaskSampler, Selector):
    """Writes the bytes ``_coming``, then ends; ``_heard`` has those of the prompt, and those that were written."""

    def start(self, context: SamplerContext) -> None:
        assert context.tokenizer is not None
        self._vocabulary = context.tokenizer.vocabulary
        self._heard = b""
        self._coming: list[int] = []
        self._began = False

    def mask(self) -> None:
        self._began = True  # the prompt was accepted

    def apply(self, candidates: Candidates) -> None:
        token = f"<0x{self._coming[0]:02X}>" if self._coming else "</s>"
        choice = self._vocabulary.ids[token]
        if choice not in candidates.ids:
            fitting = (i for i in candidates.ids if bytes(self._coming).startswith(self._vocabulary.tokens[i].encode()))
            choice = int(next(fitting, candidates.ids[0]))
        candidates.selected = choice

    def accept(self, token: int) -> None:
        text = self._vocabulary.tokens[token]
        heard = bytes.fromhex(text[3:5]) if token in self._vocabulary.byte else text.encode()
        self._heard += heard
        if self._began:
            del self._coming[: len(heard)]


@dataclass
class Script(Writer):
    """Writes a line of a script, chosen by the number of results in the prompt."""

    script: list = ()

    def mask(self) -> None:
        if not self._began:
            self._coming = list(self.script[min(self._heard.count(b"<|im_start|>tool"), len(self.script) - 1)].encode())
        super().mask()


@dataclass
class Recital(Writer):
    """Writes a text in tokens of a byte, then ends; where ``after`` was written it goes on with ``then``."""

    recite: str = ""
    after: str = ""
    then: str = ""

    def start(self, context: SamplerContext) -> None:
        super().start(context)
        self._coming = list(self.recite.encode())

    def accept(self, token: int) -> None:
        super().accept(token)
        if self.after and self._heard.endswith(self.after.encode()):
            self._coming = list(self.then.encode())


STONES = ChatFormat(marks=("<stone>",), reasoning=("<muse>", "</muse>"), calls=("<stone>{json}</stone>",))


class Plugin:
    @hookimpl
    def pumice_register_samplers(self, register):
        register("script", Script)
        register("recital", Recital)

    @hookimpl
    def pumice_register_chat_formats(self, register):
        register("stones", STONES)


@contextmanager
def scripted_model(
    folder: Path, sampler: str = "script", template: str = FAMILIES["hermes"], n_ctx: int = 2048
) -> Iterator[pumice.Model]:
    """A chat model with tools, which writes the option ``script``, or with the sampler ``recital`` ``recite``."""
    path = tiny_llama(folder / "tiny.gguf", n_ctx=n_ctx)
    settings = {"samplers": [sampler], "chat_template": template}
    with pumice.load(path, backend="numpy", n_ctx=n_ctx, config=settings, plugins=[Plugin()]) as model:
        yield model


def call(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
