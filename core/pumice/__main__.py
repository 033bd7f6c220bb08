"""The command ``pumice``, and ``python -m pumice``. Ctrl-C ends it in silence also while its modules are imported."""

import gc
import signal

from pumice.switching import COLLECTED


def main() -> None:
    gc.set_threshold(COLLECTED)
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody wants it otherwise
    if is_pythons:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pumice.cli import main

    if is_pythons:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main(confines=True)


if __name__ == "__main__":
    main()
