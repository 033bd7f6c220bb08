"""Answers as models write them, odd ones among them: the chat format, what the prompt began, the text, its parts."""

import json
from pathlib import Path
from typing import Any

CALL = '{"name": "get_weather", "arguments": {"city": "12", "days": 3}}'
_WRITTEN = json.loads((Path(__file__).parent / "fixtures" / "written_answers.json").read_text())
ANSWERS: dict[str, tuple[str, str, str, list[tuple[Any, ...]]]] = {
    name: (each["format"], each["opening"], each["text"], [tuple(part) for part in each["parts"]])
    for name, each in _WRITTEN.items()
}
