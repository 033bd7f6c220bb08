"""The process of an engine, started before a command imports its own modules, which it does not need."""


def prepare_engine() -> None:
    """Start a process that imports an engine's modules, for ``pumice.cli.confinement.start_engine``.

    Without a sandbox there is none: engines are then started by the server, which has no spawner.
    """
    from pumice.sandbox import switched_off
    from pumice.spawning import prepare

    if not switched_off():
        prepare("engine")


def discard_engine() -> None:
    """End the process if no engine was started in it."""
    from pumice.spawning import discard_prepared

    discard_prepared()
