"""Make tests/fixtures/llama_architectures.json: the values of general.architecture that llama.cpp knows.

python tests/make_fixtures/llama_architectures.py llama.cpp/src/llama-arch.cpp
"""

import json
import re
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "llama_architectures.json"


def main(source: str) -> None:
    _, _, table = Path(source).read_text().partition("LLM_ARCH_NAMES = {")
    names = re.findall(r'\{ LLM_ARCH_\w+, *"([^"(]+)"', table.partition("};")[0])
    OUT.write_text(json.dumps(sorted(names)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
