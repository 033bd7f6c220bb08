"""The command ``pumice``, and ``python -m pumice``. Ctrl-C ends it in silence also while its modules are imported."""

import signal


def main() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pumice.cli import main

    signal.signal(signal.SIGINT, handler)
    main()


if __name__ == "__main__":
    main()
