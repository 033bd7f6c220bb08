"""Every error a user can cause. Each message is one line: what is wrong, where, and what to do."""


class PumiceError(Exception):
    """Base class of all errors that Pumice raises on purpose."""


class GGUFError(PumiceError):
    """A GGUF file that is truncated, inconsistent or not GGUF, or cannot be written.

    The message names the file, and the field and its offset.
    """


class ModelError(PumiceError):
    """A valid file whose model cannot run: unknown architecture, missing or misshapen tensor, bad metadata."""


class TokenizerError(PumiceError):
    """A tokenizer that the file does not describe fully, or of an unknown kind."""


class ConfigError(PumiceError):
    """A wrong key or value in a configuration file or an argument."""


class PluginError(PumiceError):
    """A plugin that failed to load, or two plugins that claim one name."""


class BackendError(PumiceError):
    """A backend that is unknown, unavailable on this machine, or out of memory."""


class RequestError(PumiceError):
    """A request that cannot be served: a prompt that is empty or too long, or a wrong parameter.

    ``prompt_index`` is the number of the prompt among several, counted from 0.
    """

    prompt_index: int | None = None

    def __str__(self) -> str:
        return self.describe() if self.prompt_index is None else f"prompt {self.prompt_index}: {self.describe()}"

    def describe(self) -> str:
        return super().__str__()


class PromptTooLongError(RequestError):
    """A prompt of ``n_prompt_tokens`` tokens that does not fit a context of ``n_ctx`` tokens.

    If ``exact`` is False, the prompt has at least that many tokens.
    """

    def __init__(self, n_prompt_tokens: int, n_ctx: int, exact: bool = True) -> None:
        super().__init__(n_prompt_tokens, n_ctx, exact)
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx
        self.exact = exact

    def describe(self) -> str:
        n = f"{self.n_prompt_tokens} tokens" if self.exact else f"at least {self.n_prompt_tokens} tokens"
        return f"the prompt has {n}, n_ctx is {self.n_ctx}: shorten it or raise n_ctx"


class QueueFullError(RequestError):
    """The queue is full: ``n_queued`` requests wait, at most ``max_queue`` may. Try again later."""

    def __init__(self, n_queued: int, max_queue: int) -> None:
        super().__init__(n_queued, max_queue)
        self.n_queued = n_queued
        self.max_queue = max_queue

    def describe(self) -> str:
        return f"{self.n_queued} requests wait already, max_queue is {self.max_queue}: try again later"


class TooExpensiveError(RequestError):
    """A request that takes too much time or memory, or crashes the worker process that prepares it."""


class NoChatTemplateError(RequestError):
    """A chat with a model whose file has no chat template, and no template was named."""

    def describe(self) -> str:
        return self._told('chat_template="chatml"')

    @property
    def in_commands(self) -> str:
        """The message where who reads it gives options to a command."""
        return self._told("--chat-template chatml")

    def _told(self, option: str) -> str:
        known = "docs/chat.md lists them"
        return f"the model's file has no chat template: name the one that it was trained with, {option} say ({known})"


class ModelClosedError(RequestError):
    """A model that was closed, or that belongs to the process this one was forked from."""


class EngineError(PumiceError):
    """An engine in another process could not compute, for a reason that has no error of its own."""


class EngineDiedError(EngineError):
    """The process of an engine crashed or was killed, for example for its memory. Its running requests are lost."""


class UnavailableError(EngineError):
    """A temporary failure outside the request: every worker process is busy, or workers are being killed."""


class SandboxError(PumiceError):
    """Processes cannot be confined as the configuration demands."""


class QuantizeError(PumiceError):
    """A model that cannot be quantized as asked: the type, the importance matrix, a tensor's shape or numbers."""


class ConvertError(PumiceError):
    """A folder that cannot become a GGUF model: a file missing or wrong, a model class or a tensor not known."""


class HubError(PumiceError):
    """A model that cannot be found or fetched: an unknown name, no access, no network, a damaged download."""


class UnknownModelError(HubError):
    """A name of a model that means none, or several: a path where none may be, no such repository or file in it."""


def class_named(name: str) -> type[PumiceError] | None:
    """The class of errors of this name, by which another process tells of one; None: there is none."""
    kind = globals().get(name)
    return kind if isinstance(kind, type) and issubclass(kind, PumiceError) else None
