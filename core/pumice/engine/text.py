"""From tokens to text that may be shown: whole characters, and nothing that could be the start of a stop string."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pumice.tokenizers import Tokenizer


class TextStream:
    """Turns one sequence's tokens into text as they come; ends at the first of ``stop``, which is left out.

    Without a tokenizer all text is empty. Of the control tokens only those in ``special`` are text.
    """

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str], special: Container[int] = ()) -> None:
        self._decoder = tokenizer.decoder(special=special, continues=True) if tokenizer else None
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, token: int, stops: bool = True) -> str:
        """The text that became certain with this token; without ``stops`` no stop string begins or ends in it."""
        if self._decoder:
            self._held += self._decoder.push(token)
        if not stops:
            text, self._held = self._held, ""
            return text
        return self._release(final=False)

    def finish(self) -> str:
        """The rest, when no more tokens come."""
        if self._decoder and not self.stopped:
            self._held += self._decoder.flush()
        return self._release(final=True)

    def _release(self, final: bool) -> str:
        if not self._stop:
            text, self._held = self._held, ""
            return text
        found = [self._held.find(stop) for stop in self._stop]
        ends = [position for position in found if position >= 0]
        if ends:
            self.stopped = True
            text, self._held = self._held[: min(ends)], ""
            return text
        keep = 0 if final or self.stopped else self._possible_stop()
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text with which a stop string begins."""
        longest = max((len(stop) for stop in self._stop), default=0)
        for size in range(min(longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop):
                return size
        return 0
