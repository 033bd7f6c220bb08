"""The hook; the package itself imports nothing, so that help stays fast."""

from collections.abc import Callable

from pumice.plugin import hookimpl


@hookimpl
def pumice_register_commands(register: Callable[[str, str], None]) -> None:
    register("serve", "pumice_server.command.serve:command")
    register("route", "pumice_server.routing.command:command")
    register("batch", "pumice_server.batch.command:command")


@hookimpl
def pumice_register_protocols(register: Callable[[str, str], None]) -> None:
    for name in ("openai", "anthropic", "ollama", "llama_server", "vertex"):
        register(name, f"pumice_server.protocols.{name}:PROTOCOL")
