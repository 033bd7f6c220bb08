"""Fuzzers: a target a module in `fuzz/targets`, one harness for all of them. See fuzz/README.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))  # fixtures and helpers shared with the tests
