"""The hooks a Pumice plugin may implement (pluggy, project name ``pumice``, entry-point group ``pumice``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pluggy

if TYPE_CHECKING:
    import click

    from pumice.architecture import Architecture
    from pumice.backend import Backend
    from pumice.chat import ChatFormat
    from pumice.cluster import Cluster
    from pumice.convert.conversion import Conversion
    from pumice.convert.projector import ProjectorConversion
    from pumice.media_encoder import MediaEncoder
    from pumice.proposers import Proposer
    from pumice.quantizer import Quantizer
    from pumice.sampler import Sampler
    from pumice.server_protocol import ServerProtocol
    from pumice.speech_model import SpeechModel
    from pumice.tokenizers import PreTokenizer, Tokenizer

API_VERSION = 1
"""Version of the contract of plugins, which a plugin's module states as ``pumice_api``."""

Registered = TypeVar("Registered", contravariant=True)


class Register(Protocol[Registered]):
    """The function that each hook receives, to register an object, or the place to import it from, under a name."""

    def __call__(self, name: str, target: Registered | str, /) -> None:
        """Register ``target``: the object itself, or the text ``"package.module:Name"``.

        The text is resolved when the name is first used, so that registering costs nothing.

        Raises PluginError for an empty name, one registered twice, or an object that lacks the contract of its kind.
        """


hookspec = pluggy.HookspecMarker("pumice")
hookimpl = pluggy.HookimplMarker("pumice")


@hookspec
def pumice_register_backends(register: Register[type[Backend]]) -> None:
    """Call ``register(name, BackendClass)``; ``backend: name`` selects it."""


@hookspec
def pumice_register_architectures(register: Register[type[Architecture]]) -> None:
    """Call ``register(key, ArchitectureClass)``; the key is the GGUF file's ``general.architecture``."""


@hookspec
def pumice_register_samplers(register: Register[type[Sampler]]) -> None:
    """Call ``register(name, SamplerClass)``; the ``samplers`` list of a configuration holds the name."""


@hookspec
def pumice_register_proposers(register: Register[type[Proposer]]) -> None:
    """Call ``register(name, ProposerClass)``; ``speculate: name`` selects it."""


@hookspec
def pumice_register_tokenizers(register: Register[type[Tokenizer]]) -> None:
    """Call ``register(key, TokenizerClass)``; the key is the GGUF file's ``tokenizer.ggml.model``."""


@hookspec
def pumice_register_pre_tokenizers(register: Register[PreTokenizer]) -> None:
    """Call ``register(key, PreTokenizer(patterns=(...)))``; the key is the GGUF file's ``tokenizer.ggml.pre``."""


@hookspec
def pumice_register_chat_formats(register: Register[ChatFormat]) -> None:
    """Call ``register(name, ChatFormat(marks=(...), calls=(...)))``; marks of a model's template select it."""


@hookspec
def pumice_register_quantizers(register: Register[Quantizer]) -> None:
    """Call ``register(type, quantizer)`` with an instance; the type is a tensor type's name, such as ``Q4_K``."""


@hookspec
def pumice_register_conversions(register: Register[type[Conversion]]) -> None:
    """Call ``register(name, ConversionClass)``; the name is the first of ``architectures`` in a ``config.json``."""


@hookspec
def pumice_register_projector_conversions(register: Register[type[ProjectorConversion]]) -> None:
    """Call ``register(name, ProjectorConversionClass)``; the name is that of the whole model's class."""


@hookspec
def pumice_register_media_encoders(register: Register[type[MediaEncoder]]) -> None:
    """Call ``register(type, MediaEncoderClass)``; the type is the projector file's ``clip.projector_type``."""


@hookspec
def pumice_register_speech_models(register: Register[type[SpeechModel]]) -> None:
    """Call ``register(type, SpeechModelClass)``; the type is the projector file's ``clip.gen.audio.projector_type``."""


@hookspec
def pumice_register_clusters(register: Register[type[Cluster[object]]]) -> None:
    """Call ``register(name, ClusterClass)``; the command-line option of that name selects it: ``--ray``."""


@hookspec
def pumice_register_protocols(register: Register[ServerProtocol]) -> None:
    """Call ``register(name, protocol)`` with an instance; ``pumice serve`` serves the endpoints of all protocols."""


@hookspec
def pumice_register_commands(register: Register[click.Command]) -> None:
    """Call ``register(name, command)`` with a command of the package click; ``pumice name`` runs it."""
