"""Tokens to text, one at a time."""

import codecs
from collections.abc import Callable, Container


class IncrementalDecoder:
    """Turns tokens into text as they come, never splitting a UTF-8 character.

    The texts that `push` and a last `flush` return, joined, are what ``Tokenizer.detokenize`` makes of all the
    tokens. Bytes that are not UTF-8 become U+FFFD as soon as nothing can complete them.
    """

    def __init__(
        self,
        piece: Callable[[int], bytes],
        *,
        at_start: bool,
        starts_text: Container[int] = (),
    ) -> None:
        """``piece`` gives a token's bytes. ``at_start``: a space that opens the first token is not text.

        ``starts_text``: tokens after which that holds again.
        """
        self._piece = piece
        self._at_start = at_start
        self._starts_text = starts_text
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that ``token`` completes; may be empty."""
        piece = self._piece(token)
        if self._at_start:
            piece = piece.removeprefix(b" ")
        self._at_start = token in self._starts_text
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """The text of an incomplete last character (U+FFFD), if there is one."""
        return self._utf8.decode(b"", final=True)
