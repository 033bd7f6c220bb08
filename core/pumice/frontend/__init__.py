"""The front of a model: tokens, chat templates, requests and streams, without weights.

The engine is at the other end of an ``EngineClient``: in a thread, in another process, or on another machine.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from pumice.engine import Snapshot
from pumice.errors import ModelClosedError
from pumice.frontend.base import LazyTokenizer
from pumice.frontend.chatting import Chatting
from pumice.frontend.embedding import Embedding
from pumice.frontend.generating import Prompt, PromptProgress
from pumice.frontend.saving import Saving
from pumice.frontend.scoring import Scoring
from pumice.frontend.speaking import Speaking
from pumice.frontend.transcribing import Transcribing
from pumice.notebook import facts_table, show_count
from pumice.wording import format_bytes

__all__ = ["PUBLIC", "Frontend", "LazyTokenizer", "Prompt", "PromptProgress"]

PUBLIC = {
    "Texts": "generate generate_many stream agenerate astream prepare_options",
    "Chats": "chat chat_stream achat achat_stream apply_template prepare_chat has_chat_template template_capabilities",
    "Vectors": "embed aembed prepare_embed rerank arerank",
    "Scores": "logits continuation_logits prompt_logprobs aprompt_logprobs",
    "Speech": "speak speak_stream aspeak_stream",
    "Tokens": "tokenize detokenize tokenizer n_vocab n_ctx",
    "Prompts on disk": "save_prompt asave_prompt",
    "The model": "architecture metadata summary facts memory backends loras config sampling snapshot",
    "Its end": "close closed error",
}
"""The public names of a model by subject, which completion shows and the reference lists."""


class Frontend(Chatting, Embedding, Saving, Scoring, Speaking, Transcribing):
    """A loaded model, wherever its engine runs. It is a context manager; otherwise ``close`` it."""

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
        """Return the public names, for completion."""
        return [
            name
            for name in sorted(" ".join(PUBLIC.values()).split())
            if hasattr(type(self), name) or name in vars(self)
        ]

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"on {', '.join(self.backends)}, n_ctx {self.n_ctx}"
        return f"<pumice.{type(self).__name__} {str(self._file.path)!r} {state}>"

    def _repr_html_(self) -> str:
        memory = ", ".join(f"{purpose} {format_bytes(n)}" for purpose, n in self.memory.items() if n)
        facts = {
            "file": self._file.path,
            **self.summary.facts,
            "backends": ", ".join(self.backends),
            "context": show_count(self.n_ctx, "token"),
            "memory": memory,
            "state": "closed" if self.closed else "open",
        }
        return facts_table(f"pumice.{type(self).__name__}", facts)

    def __exit__(self, *_: object) -> None:
        self.close()
