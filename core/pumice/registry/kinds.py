"""The kinds of things that plugins register, one row of ``KINDS`` per hook."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.architecture import Architecture
from pumice.backend import Backend
from pumice.chat import ChatFormat
from pumice.cluster import Cluster
from pumice.config import SETTINGS
from pumice.errors import (
    BackendError,
    ConfigError,
    ConvertError,
    ModelError,
    PluginError,
    PumiceError,
    QuantizeError,
    TokenizerError,
)
from pumice.gguf import GGMLType
from pumice.lazy import resolve
from pumice.media_encoder import MediaEncoder
from pumice.proposers import CHOICES, Proposer
from pumice.quantizer import Quantizer
from pumice.sampler import Sampler, parameters
from pumice.server_protocol import ServerProtocol
from pumice.speech_model import SpeechModel
from pumice.tokenizers import PreTokenizer, Tokenizer
from pumice.wording import documentation_page

Check = Callable[[str, Any, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Kind:
    """A kind of things with one contract. Plugins register them through the hook ``pumice_register_<plural>``.

    Attributes:
        check: raises PluginError for an invalid thing; called with its name, the thing, and the already registered
            things of the kind by name.
        error: raised for an unknown name, with ``advice`` at the end of its message.
    """

    plural: str
    check: Check
    error: type[PumiceError]
    advice: str = ""

    @property
    def hook(self) -> str:
        return f"pumice_register_{self.plural}"

    @property
    def noun(self) -> str:
        """The singular for messages: ``"pre-tokenizer"``."""
        return self.plural.removesuffix("s").replace("_", "-")


def _check_class(contract: type | str) -> Check:
    """Return a check that a thing is a class that implements ``contract``, a class or where it is imported from."""

    def check(name: str, cls: Any, others: Mapping[str, Any]) -> None:
        parent: type = resolve(contract)
        if not isinstance(cls, type) or not issubclass(cls, parent):
            raise PluginError(f"expected a subclass of {parent.__name__}, not {cls!r}")
        if inspect.isabstract(cls):
            lacking = getattr(cls, "__abstractmethods__", ())
            raise PluginError(f"{cls.__name__} lacks {', '.join(sorted(lacking))}")

    return check


def _check_backend(name: str, cls: Any, others: Mapping[str, Any]) -> None:
    _check_class(Backend)(name, cls, others)
    if not dataclasses.is_dataclass(cls.Options):
        raise PluginError(f"its Options must be a dataclass, not {cls.Options!r}")
    if name == "auto" or name in SETTINGS:
        raise PluginError("this name has another meaning in configuration files; choose another")


def _check_sampler(name: str, cls: Any, others: Mapping[str, Any]) -> None:
    _check_class(Sampler)(name, cls, others)
    for item in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if item.init and item.default is item.default_factory is dataclasses.MISSING:
            raise PluginError(f"its parameter {item.name!r} needs a default")
        if item.init and item.name in parameters.RESERVED:
            raise PluginError(f"its parameter {item.name!r} is an argument of generate; choose another name")
    mine = typing.get_type_hints(cls)
    for other_name, other in others.items():
        theirs = typing.get_type_hints(other)
        for parameter in parameters.names(cls):
            if parameter in parameters.names(other) and mine[parameter] != theirs[parameter]:
                raise PluginError(
                    f"its parameter {parameter!r} is {_written(mine[parameter])}, and {_written(theirs[parameter])} in "
                    f"the sampler {other_name!r}; both get one value, so choose another name"
                )


def _check_proposer(name: str, cls: Any, others: Mapping[str, Any]) -> None:
    _check_class(Proposer)(name, cls, others)
    if name in CHOICES or not name.replace("-", "").isidentifier():
        raise PluginError(f"{name!r} has another meaning as a value of speculate; use letters, digits and dashes")
    for item in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if item.init and item.default is item.default_factory is dataclasses.MISSING:
            raise PluginError(f"its parameter {item.name!r} needs a default")


def _check_pre_tokenizer(name: str, row: Any, others: Mapping[str, Any]) -> None:
    if not isinstance(row, PreTokenizer):
        raise PluginError(f"expected a PreTokenizer, not {row!r}")
    if not isinstance(row.patterns, tuple) or not all(isinstance(pattern, str) for pattern in row.patterns):
        raise PluginError(f"its patterns must be a tuple of strings, not {row.patterns!r}")


def _check_chat_format(name: str, chat_format: Any, others: Mapping[str, Any]) -> None:
    if not isinstance(chat_format, ChatFormat):
        raise PluginError(f"expected a ChatFormat, not {chat_format!r}")
    if problem := chat_format.problem():
        raise PluginError(problem)


def _check_quantizer(name: str, quantizer: Any, others: Mapping[str, Any]) -> None:
    if not isinstance(quantizer, Quantizer):
        raise PluginError(f"expected a Quantizer, not {quantizer!r}")
    if name not in GGMLType.__members__:
        raise PluginError(f"unknown tensor type {name}")


def _check_protocol(name: str, protocol: Any, others: Mapping[str, Any]) -> None:
    if not isinstance(protocol, ServerProtocol):
        raise PluginError(f"expected a ServerProtocol, not {protocol!r:.100}")
    if bool(protocol.prefix) != bool(protocol.error) or not callable(protocol.endpoints):
        raise PluginError("it needs a function as endpoints, and prefix and error both or neither")


def _check_command(name: str, command: Any, others: Mapping[str, Any]) -> None:
    import click

    if not isinstance(command, click.Command):
        raise PluginError(f"expected a click.Command, not {command!r}; decorate a function with @click.command()")


def _written(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


_ADVICE = f"; a plugin can add it: see {documentation_page('plugins.md')}"

_CONVERSION, _PROJECTOR = "pumice.convert.conversion:Conversion", "pumice.convert.projector:ProjectorConversion"
_CLUSTER_ADVICE = "; Pumice's own is in pumice[ray]"

KINDS = {
    kind.plural: kind
    for kind in (
        Kind("backends", _check_backend, BackendError),
        Kind("architectures", _check_class(Architecture), ModelError, _ADVICE),
        Kind("samplers", _check_sampler, ConfigError),
        Kind("proposers", _check_proposer, ConfigError),
        Kind("tokenizers", _check_class(Tokenizer), TokenizerError, _ADVICE),
        Kind("pre_tokenizers", _check_pre_tokenizer, TokenizerError, _ADVICE),
        Kind("chat_formats", _check_chat_format, ConfigError),
        Kind("quantizers", _check_quantizer, QuantizeError, _ADVICE),
        Kind("conversions", _check_class(_CONVERSION), ConvertError, _ADVICE),
        Kind("projector_conversions", _check_class(_PROJECTOR), ConvertError, _ADVICE),
        Kind("media_encoders", _check_class(MediaEncoder), ModelError, _ADVICE),
        Kind("speech_models", _check_class(SpeechModel), ModelError, _ADVICE),
        Kind("clusters", _check_class(Cluster), PluginError, _CLUSTER_ADVICE),
        Kind("protocols", _check_protocol, PluginError),
        Kind("commands", _check_command, PluginError),
    )
}
"""Kinds by plural, in the order in which ``pumice plugins`` lists them."""
