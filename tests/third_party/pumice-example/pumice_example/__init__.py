"""A Pumice plugin: an architecture, a backend and a sampler."""

from pumice.plugin import hookimpl
from pumice_example.architecture import Stone
from pumice_example.backend import LinearBackend
from pumice_example.sampler import NoRepeat


@hookimpl
def pumice_register_architectures(register):
    register("stone", Stone)


@hookimpl
def pumice_register_backends(register):
    register("example", LinearBackend)


@hookimpl
def pumice_register_samplers(register):
    register("no_repeat", NoRepeat)
