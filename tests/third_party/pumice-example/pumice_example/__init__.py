"""A Pumice plugin: an architecture with its pre-tokenizer, a backend, a sampler and a command."""

from pumice.plugin import hookimpl


@hookimpl
def pumice_register_architectures(register):
    register("stone", "pumice_example.architecture:Stone")


@hookimpl
def pumice_register_backends(register):
    register("example", "pumice_example.backend:LinearBackend")


@hookimpl
def pumice_register_samplers(register):
    register("no_repeat", "pumice_example.sampler:NoRepeat")


@hookimpl
def pumice_register_pre_tokenizers(register):
    register("stone", "pumice_example.tokenizer:STONE")


@hookimpl
def pumice_register_commands(register):
    register("longest", "pumice_example.command:longest")
