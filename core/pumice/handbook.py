"""Where the handbook lies, for messages that lead to a page of it."""

from pathlib import Path


def page(name: str) -> str:
    """The path of ``docs/<name>``: inside the package when installed, at the root of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "docs" / name
    return str(installed if installed.exists() else package.parents[1] / "docs" / name)
