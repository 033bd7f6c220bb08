"""The keys of configurations that conversions read."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("core/pumice/convert", "plugins/pumice_architectures/conversions")
UNREAD = ROOT / "tests/fixtures/conversions/unread.json"


def read_keys() -> set[str]:
    """Return all words in quotes of the conversions' sources."""
    return set(re.findall(r'"(\w+)"', "".join(p.read_text() for each in SOURCES for p in (ROOT / each).glob("*.py"))))
