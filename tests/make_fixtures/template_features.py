"""Make tests/fixtures/template_features.json: the texts of tests/template_features.py, rendered by transformers.

    python tests/make_fixtures/template_features.py

Needs transformers and jinja2.
"""

import copy
import json
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from template_features import CONTEXT, FEATURES  # noqa: E402

OUT = TESTS / "fixtures" / "template_features.json"


def main() -> None:
    texts = {
        name: _compile_jinja_template(source).render(**copy.deepcopy(CONTEXT)) for name, source in FEATURES.items()
    }
    OUT.write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
