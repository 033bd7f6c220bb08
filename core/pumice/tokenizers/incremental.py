"""Convert tokens to text one at a time."""

import codecs
from collections.abc import Callable, Container


class IncrementalDecoder:
    """Converts a stream of tokens to text without splitting UTF-8 characters.

    The texts of all calls of `push` and of a final `flush`, joined, equal ``Tokenizer.detokenize`` of all tokens.
    Invalid UTF-8 becomes U+FFFD as soon as no further byte can complete it.
    """

    def __init__(
        self,
        piece: Callable[[int], bytes],
        *,
        at_start: bool,
        starts_text: Container[int] = (),
    ) -> None:
        """Initialize the decoder.

        Args:
            piece: Returns the bytes of a token.
            at_start: Drop a space at the start of the first token.
            starts_text: Tokens after which a space is dropped, too.
        """
        self._piece = piece
        self._at_start = at_start
        self._starts_text = starts_text
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Return the text that ``token`` completes; may be empty."""
        piece = self._piece(token)
        if self._at_start:
            piece = piece.removeprefix(b" ")
        self._at_start = token in self._starts_text
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """Return U+FFFD for an incomplete last character; empty without one."""
        return self._utf8.decode(b"", final=True)
