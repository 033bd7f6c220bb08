"""A Pumice plugin: an architecture with its pre-tokenizer, a backend, a sampler, a proposer and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumice.plugin import Architecture, ChatFormat, PreTokenizer, Proposer, Register, Sampler, hookimpl

if TYPE_CHECKING:  # imported where they are used
    import click

    from pumice.plugin.unstable import Backend, ServerProtocol

pumice_api = 1  # the version of the contract that this plugin was written for


@hookimpl
def pumice_register_architectures(register: Register[type[Architecture]]) -> None:
    register("stone", "pumice_example.architecture:Stone")


@hookimpl
def pumice_register_backends(register: Register[type[Backend]]) -> None:
    register("example", "pumice_example.backend:LinearBackend")


@hookimpl
def pumice_register_samplers(register: Register[type[Sampler]]) -> None:
    register("no_repeat", "pumice_example.sampler:NoRepeat")


@hookimpl
def pumice_register_proposers(register: Register[type[Proposer]]) -> None:
    register("again", "pumice_example.proposer:Again")


@hookimpl
def pumice_register_pre_tokenizers(register: Register[PreTokenizer]) -> None:
    register("stone", "pumice_example.tokenizer:STONE")


@hookimpl
def pumice_register_chat_formats(register: Register[ChatFormat]) -> None:
    register("stones", "pumice_example.chat_format:STONES")


@hookimpl
def pumice_register_commands(register: Register[click.Command]) -> None:
    register("longest", "pumice_example.command:longest")


@hookimpl
def pumice_register_protocols(register: Register[ServerProtocol]) -> None:
    register("example", "pumice_example.protocol:PROTOCOL")
