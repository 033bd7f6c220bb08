"""The process of an engine, started before a command imports its own modules, which it does not need."""


def prepare_engine() -> None:
    """Start a process that imports an engine's modules, for ``pumice.cli.confinement.start_engine``."""
    from pumice.spawning import prepare

    prepare("engine")


def discard_engine() -> None:
    """End the process if no engine was started in it."""
    from pumice.spawning import discard_prepared

    discard_prepared()
