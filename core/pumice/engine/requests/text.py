"""Convert tokens to text that can be shown: whole characters, and no beginnings of stop strings."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pumice.tokenizers import Tokenizer


class TextStream:
    """Converts one sequence's tokens to text incrementally; ends before the first of the ``stop`` strings.

    Without a tokenizer all text is empty. Control tokens are text only if they are in ``special``.
    """

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str], special: Container[int] = ()) -> None:
        self._decoder = tokenizer.decoder(special=special, continues=True) if tokenizer else None
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, token: int, stops: bool = True) -> str:
        """Return the text that is certain with this token; without ``stops`` no stop string begins or ends in it."""
        if self._decoder:
            self._held += self._decoder.push(token)
        if not stops:
            text, self._held = self._held, ""
            return text
        return self._release(final=False)

    def finish(self) -> str:
        """Return the remaining text after the last token."""
        if self._decoder and not self.stopped:
            self._held += self._decoder.flush()
        return self._release(final=True)

    def _release(self, final: bool) -> str:
        if not self._stop:
            text, self._held = self._held, ""
            return text
        positions = [self._held.find(stop) for stop in self._stop]
        ends = [position for position in positions if position >= 0]
        if ends:
            self.stopped = True
            text, self._held = self._held[: min(ends)], ""
            return text
        keep = 0 if final or self.stopped else self._possible_stop()
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _possible_stop(self) -> int:
        """Return the length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) for stop in self._stop), default=0)
        for size in range(min(longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0
