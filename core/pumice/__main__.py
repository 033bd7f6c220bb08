"""The command ``pumice``, and ``python -m pumice``. Ctrl-C ends it in silence also while its modules are imported."""

import gc
import signal

_COLLECTED = 10_000  # objects between two collections of garbage; Python's 700 cost a tenth of the time of imports


def main() -> None:
    gc.set_threshold(_COLLECTED)
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody wants it otherwise
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pumice.cli import main

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(confines=True)


if __name__ == "__main__":
    main()
