"""The front of a model: tokens, chat templates, requests and streams; all that needs no weights.

Its engine is at the other end of an ``EngineClient``: in a thread, in another process, on another machine.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from pumice.engine import Snapshot
from pumice.errors import ModelClosedError
from pumice.frontend.base import TokenizerOf
from pumice.frontend.chatting import Chatting
from pumice.frontend.embedding import Embedding
from pumice.frontend.generating import Progress, Prompt
from pumice.frontend.scoring import Scoring

__all__ = ["Frontend", "Progress", "Prompt", "TokenizerOf"]


class Frontend(Chatting, Embedding, Scoring):
    """What all models have, wherever they compute. Use as a context manager, or ``close`` it."""

    def snapshot(self) -> Snapshot:
        """Return the load of the engine: waiting and running sequences, blocks of the cache in use."""
        return self.client.snapshot()

    @abstractmethod
    def close(self) -> None:
        """Free the memory and close the file. Open streams end with the reason ``cancelled``."""

    def __enter__(self) -> Self:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return self

    def __dir__(self) -> list[str]:
        """The names that users call, for completion: attributes that begin with an underscore are left out."""
        return sorted(name for name in super().__dir__() if not name.startswith("_"))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"on {', '.join(self.backends)}, n_ctx {self.n_ctx}"
        return f"<pumice.{type(self).__name__} {str(self._file.path)!r} {state}>"

    def __exit__(self, *_: object) -> None:
        self.close()
