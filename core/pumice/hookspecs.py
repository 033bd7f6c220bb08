"""The hooks a Pumice plugin may implement (pluggy, project name ``pumice``, entry-point group ``pumice``).

Each hook receives ``register``, a callable that takes a name and an object. The object may be the text
``"package.module:Name"``, which is imported when the name is first used, so that registering costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
    from pumice.speech_model import SpeechModel
    from pumice.tokenizers import PreTokenizer, Tokenizer

hookspec = pluggy.HookspecMarker("pumice")
hookimpl = pluggy.HookimplMarker("pumice")


@hookspec
def pumice_register_backends(register: Callable[[str, type[Backend] | str], None]) -> None:
    """Call ``register(name, BackendClass)``; ``backend: name`` selects it."""


@hookspec
def pumice_register_architectures(register: Callable[[str, type[Architecture] | str], None]) -> None:
    """Call ``register(key, ArchitectureClass)``; the key is the GGUF file's ``general.architecture``."""


@hookspec
def pumice_register_samplers(register: Callable[[str, type[Sampler] | str], None]) -> None:
    """Call ``register(name, SamplerClass)``; the ``samplers`` list of a configuration holds the name."""


@hookspec
def pumice_register_proposers(register: Callable[[str, type[Proposer] | str], None]) -> None:
    """Call ``register(name, ProposerClass)``; ``speculate: name`` selects it."""


@hookspec
def pumice_register_tokenizers(register: Callable[[str, type[Tokenizer] | str], None]) -> None:
    """Call ``register(key, TokenizerClass)``; the key is the GGUF file's ``tokenizer.ggml.model``."""


@hookspec
def pumice_register_pre_tokenizers(register: Callable[[str, PreTokenizer | str], None]) -> None:
    """Call ``register(key, PreTokenizer(patterns=(...)))``; the key is the GGUF file's ``tokenizer.ggml.pre``."""


@hookspec
def pumice_register_chat_formats(register: Callable[[str, ChatFormat | str], None]) -> None:
    """Call ``register(name, ChatFormat(marks=(...), calls=(...)))``; marks of a model's template select it."""


@hookspec
def pumice_register_quantizers(register: Callable[[str, Quantizer | str], None]) -> None:
    """Call ``register(type, quantizer)`` with an instance; the type is a tensor type's name, such as ``Q4_K``."""


@hookspec
def pumice_register_conversions(register: Callable[[str, type[Conversion] | str], None]) -> None:
    """Call ``register(name, ConversionClass)``; the name is the first of ``architectures`` in a ``config.json``."""


@hookspec
def pumice_register_projector_conversions(register: Callable[[str, type[ProjectorConversion] | str], None]) -> None:
    """Call ``register(name, ProjectorConversionClass)``; the name is that of the whole model's class."""


@hookspec
def pumice_register_media_encoders(register: Callable[[str, type[MediaEncoder] | str], None]) -> None:
    """Call ``register(type, MediaEncoderClass)``; the type is the projector file's ``clip.projector_type``."""


@hookspec
def pumice_register_speech_models(register: Callable[[str, type[SpeechModel] | str], None]) -> None:
    """Call ``register(type, SpeechModelClass)``; the type is the projector file's ``clip.gen.audio.projector_type``."""


@hookspec
def pumice_register_clusters(register: Callable[[str, type[Cluster[object]] | str], None]) -> None:
    """Call ``register(name, ClusterClass)``; the command-line option of that name selects it: ``--ray``."""


@hookspec
def pumice_register_commands(register: Callable[[str, click.Command | str], None]) -> None:
    """Call ``register(name, command)`` with a command of the package click; ``pumice name`` runs it."""
