"""Make tests/fixtures/template_features.json: what transformers renders of a template for each feature of Jinja2 3.1.

    python tests/make_fixtures/template_features.py

Needs transformers and jinja2.
"""

import copy
import json
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "template_features.json"


def main() -> None:
    stored = json.loads(OUT.read_text())
    for feature in stored["features"].values():
        compiled = _compile_jinja_template(feature["template"])
        feature["text"] = compiled.render(**copy.deepcopy(stored["context"]))
    OUT.write_text(json.dumps(stored, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
