"""Make the table of model classes in docs/model_classes.md: what each becomes, and what was compared.

python tests/make_fixtures/model_classes.py
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from checkpoints import FIXTURES  # noqa: E402
from pumice.lazy import resolve  # noqa: E402
from pumice_architectures.conversions import CONVERSIONS  # noqa: E402

DOCS = TESTS.parent / "docs" / "model_classes.md"
BEGIN, END = "<!-- model classes -->\n", "<!-- end of model classes -->\n"
HEADER = (
    "| architecture | model classes | compared with llama.cpp's converter | with transformers |\n"
    + "| --- " * 4
    + "|\n"
)


def main() -> None:
    before, _, after = parts(DOCS.read_text())
    DOCS.write_text(before + HEADER + "".join(rows()) + after)


def parts(text: str) -> tuple[str, str, str]:
    """The page before the table, the table, and the rest."""
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start], text[start:stop], text[stop:]


def rows() -> Iterator[str]:
    """One for each class of ours, in the order of architectures."""
    cases = json.loads((FIXTURES / "cases.json").read_text())
    logits = np.load(FIXTURES / "logits.npz").files
    of_class: dict[str, list[str]] = {}
    for name, conversion in CONVERSIONS.items():
        of_class.setdefault(conversion, []).append(name)
    for architecture, names in sorted((resolve(each).architecture, names) for each, names in of_class.items()):
        here = [case for case, values in cases.items() if class_of(values["config"]) in names]
        equal = ", ".join(case for case in here if cases[case]["theirs"])
        alike = ", ".join(case for case in here if case in logits)
        yield f"| `{architecture}` | {', '.join(f'`{name}`' for name in names)} | {equal or '-'} | {alike or '-'} |\n"


def class_of(config: dict[str, Any]) -> str:
    """The class of a case; the one whose folders have no configuration is pocket-tts'."""
    return config.get("architectures", ["PocketTTSModel"])[0]


if __name__ == "__main__":
    main()
