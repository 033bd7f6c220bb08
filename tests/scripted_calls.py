"""A model that writes given texts, for chats with tools: each text answers the results so far."""

import json
from dataclasses import dataclass

from pumice.plugin import Candidates, MaskSampler, SamplerContext, Selector, hookimpl


@dataclass
class Script(MaskSampler, Selector):
    """Writes a line of a script, chosen by the number of results in the prompt."""

    script: list = ()

    def start(self, context: SamplerContext) -> None:
        self._vocabulary = context.tokenizer.vocabulary
        self._heard = b""
        self._coming = None

    def mask(self) -> None:
        if self._coming is None:
            self._coming = list(self.script[min(self._heard.count(b"<|im_start|>tool"), len(self.script) - 1)].encode())

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
        if self._coming is not None:
            del self._coming[: len(heard)]


class Plugin:
    @hookimpl
    def pumice_register_samplers(self, register):
        register("script", Script)


def call(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
