"""The texts and tokens of a loaded model, and the kinds of its input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pumice
from pumice_server.errors import bad_request
from pumice_server.work import aside

TextOrTokens = str | list[int]

WORK = 8  # cost of tokenizing a character relative to parsing a byte of JSON


class ModelTexts:
    """A loaded model, in this process or in another one."""

    def __init__(self, model: pumice.Model) -> None:
        self.model = model

    async def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the tokens of a text, computed off the event loop."""
        return await aside(self.model.tokenizer.tokenize, text, add_special, parse_special, size=WORK * len(text))

    def tokens_of(self, prompt: TextOrTokens, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Return the tokens of a prompt; slow. Raises RequestError and HTTPException if it does not fit the context."""
        if isinstance(prompt, str):
            self.model.tokenizer.check_fits([prompt], self.model.n_ctx)
            return self.model.tokenizer.tokenize(prompt, add_special, parse_special)
        self.check_length(prompt)
        wrong = next((token for token in prompt if not 0 <= token < self.model.n_vocab), None)
        if wrong is not None:
            raise bad_request(f"token id {wrong} is outside the vocabulary of {self.model.n_vocab}")
        return prompt

    async def read_prompts(self, prompts: Sequence[TextOrTokens]) -> list[list[int]]:
        """Return the tokens of prompts, computed off the event loop. Raises as ``tokens_of``."""
        return await aside(lambda: list(map(self.tokens_of, prompts)), size=WORK * sum(map(len, prompts)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, computed off the event loop."""
        return await aside(self.model.tokenizer.detokenize, tokens, size=WORK * len(tokens))

    def token_bytes(self, token: int) -> bytes:
        return self.model.tokenizer.token_bytes(token, special=True)

    def spelt(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special tokens included; slow for many tokens.

        The text is empty if the file has no tokenizer.
        """
        try:
            tokenizer = self.model.tokenizer
        except pumice.TokenizerError:
            return ""
        return b"".join(tokenizer.token_bytes(token, special=True) for token in tokens).decode("utf-8", "replace")

    def stopping_word(self, done: pumice.Completion | pumice.ChatCompletion, stops: Iterable[str]) -> str:
        """Return the stop string that ended a completion, or an empty text. Its tokens hold it, its text does not."""
        if done.finish_reason != "stop":
            return ""
        spelt = self.spelt(done.tokens)
        return next((stop for stop in stops if stop in spelt), "")

    def check_length(self, tokens: Sequence[int]) -> None:
        """Raise PromptTooLongError for a prompt that exceeds the context, before any work on its tokens."""
        if len(tokens) > self.model.n_ctx:
            raise pumice.PromptTooLongError(len(tokens), self.model.n_ctx)
