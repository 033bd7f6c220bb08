"""``python -m pumice`` is the command ``pumice``."""

from pumice.cli import main

main()
