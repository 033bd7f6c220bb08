"""All errors that users can cause. Each message is one line: the problem, its place, and what to do."""

from collections import abc
from typing import TypeAlias


class PumiceError(Exception):
    """Base class of all errors that Pumice raises on purpose.

    Attributes:
        messages: With ``run_tools`` the answers and results before the error, as in ``ChatCompletion.messages``.
    """

    messages: abc.Sequence[object] = ()


class GGUFError(PumiceError):
    """A GGUF file that is truncated, inconsistent or not GGUF, or cannot be written.

    The message names the file, and the field and its offset.
    """


class ModelError(PumiceError):
    """A valid file whose model cannot run: unknown architecture, missing or misshapen tensor, bad metadata."""


class TokenizerError(PumiceError):
    """A tokenizer that the file describes incompletely, or of an unknown kind."""


class ConfigError(PumiceError):
    """An invalid key or value in a configuration file or an argument."""


class PluginError(PumiceError):
    """A plugin that failed to load, or two plugins that claim one name."""


class BackendError(PumiceError):
    """A backend that is unknown, unavailable on this machine, or out of memory."""


class RequestError(PumiceError):
    """A request that cannot be served: a prompt that is empty or too long, or a wrong parameter.

    Attributes:
        prompt_index: index of the prompt among several, from 0; None if the request has one prompt.
    """

    prompt_index: int | None = None

    def __str__(self) -> str:
        return self.describe() if self.prompt_index is None else f"prompt {self.prompt_index}: {self.describe()}"

    def describe(self) -> str:
        """Return the message without the prompt's number."""
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
        """Return the message: the prompt's length, the context, and the remedy.

        Coding agents look for llama-server's words "exceeds the available context size", and shorten their chat.
        """
        n = f"{self.n_prompt_tokens} tokens" if self.exact else f"at least {self.n_prompt_tokens} tokens"
        return (
            f"the prompt has {n}, n_ctx is {self.n_ctx}: it exceeds the available context size; shorten it or raise "
            "n_ctx"
        )


class QueueFullError(RequestError):
    """The queue is full: ``n_queued`` requests wait, at most ``max_queue`` may. Try again later."""

    def __init__(self, n_queued: int, max_queue: int) -> None:
        super().__init__(n_queued, max_queue)
        self.n_queued = n_queued
        self.max_queue = max_queue

    def describe(self) -> str:
        """Return the message: the length of the queue and its limit."""
        return f"{self.n_queued} requests wait already, max_queue is {self.max_queue}: try again later"


class RequestTimeoutError(RequestError, TimeoutError):
    """A request without partial results, such as an embedding, that has reached its timeout of ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def describe(self) -> str:
        """Return the message, with the limit."""
        return f"the request has reached its timeout of {self.seconds:g} seconds: raise it, or try again later"


class MediaError(RequestError):
    """An image, a sound or a video of a request that cannot be read, or is beyond a limit.

    Attributes:
        kind: "image", "audio" or "video".
        name: the file's path in quotation marks, or its number such as "2 of 3"; empty if the request has one without
            a path.
    """

    def __init__(self, kind: str, problem: str, name: str = "") -> None:
        super().__init__(kind, problem, name)
        self.kind = kind

    @property
    def name(self) -> str:
        return str(self.args[2])

    @name.setter
    def name(self, name: str) -> None:
        self.args = *self.args[:2], name

    def describe(self) -> str:
        """Return the message: the kind, the file and the problem."""
        kind, problem, name = self.args
        return f"{kind} {name}: {problem}" if name else f"{kind}: {problem}"


class MissingPackageError(MediaError):
    """A file of a kind for which a package is missing. The message is for clients, too: it names no paths."""


class TooExpensiveError(RequestError):
    """A request that takes too much time or memory, or crashes the worker process that prepares it."""


class NoChatTemplateError(RequestError):
    """A chat with a model whose file has no chat template, and no template was named."""

    def describe(self) -> str:
        """Return the message, with the argument that names a template."""
        return self._message('chat_template="chatml"')

    @property
    def in_commands(self) -> str:
        """The message with the command-line option instead of the argument."""
        return self._message("--chat-template chatml")

    def _message(self, option: str) -> str:
        return (
            "the model's file has no chat template: name the template that it was trained with, for example "
            f"{option} (see docs/chat.md)"
        )


class ModelClosedError(RequestError):
    """A closed model, or a model of the parent process in a forked child."""


class EngineError(PumiceError):
    """A failure of an engine in another process that no other error class describes."""


class EngineDiedError(EngineError):
    """The process of an engine crashed or was killed, for example by the memory limit. Its requests are lost."""


class EngineKilledError(EngineDiedError):
    """The process of an engine was killed by SIGKILL, as the system does when memory runs out."""


class OutOfMemoryError(BackendError, EngineError):
    """A model that needs more memory than its device, the machine or ``memory_limit`` has left."""


class UnavailableError(EngineError):
    """A temporary failure outside the request: every worker process is busy, or workers are being killed."""


class SandboxError(PumiceError):
    """A sandbox that the configuration requires, and that this system cannot provide."""


class QuantizeError(PumiceError):
    """A model that cannot be quantized, because of the type, the importance matrix, a tensor's shape or values."""


class ConvertError(PumiceError):
    """A folder that cannot be converted to GGUF: a missing or invalid file, an unknown model class or tensor."""


class HubError(PumiceError):
    """A model that cannot be found or downloaded: unknown name, no access, no network, damaged download."""


class UnknownModelError(HubError):
    """A name that matches no model or several: a forbidden path, or an unknown repository or file."""


def class_named(name: str) -> type[PumiceError] | None:
    """Return the error class of a name, as another process reports it; None if there is none."""
    kind = globals().get(name)
    return kind if isinstance(kind, type) and issubclass(kind, PumiceError) else None


PlainArguments: TypeAlias = "list[str | int | float | bool | None]"


def to_plain(error: PumiceError) -> tuple[str, PlainArguments]:
    """Return an error for another process: the name of its nearest class of this module, and arguments of that."""
    kind = next(cls for cls in type(error).__mro__ if class_named(cls.__name__) is cls)
    is_plain = kind is type(error) and all(isinstance(item, (str, int, float, type(None))) for item in error.args)
    return kind.__name__, list(error.args) if is_plain else [str(error)]


def from_plain(name: str, arguments: PlainArguments) -> PumiceError:
    """Return the error of ``to_plain``. Raises ValueError for an unknown class, and arguments that are not its own."""
    kind = class_named(name)
    if kind is None:
        raise ValueError(f"unknown class of errors {name[:60]!r}")
    try:
        error = kind(*arguments)
        str(error)
    except (TypeError, ValueError) as failure:
        raise ValueError(f"arguments of {name} that it does not take: {failure}") from None
    return error
