import json
import os
import tempfile
from pathlib import Path

from clients_common import MODEL, SCHEMA, URL, run

folder = tempfile.TemporaryDirectory()
os.environ["LLM_USER_PATH"] = folder.name
(Path(folder.name) / "extra-openai-models.yaml").write_text(
    f"- {{model_id: pumice, model_name: {MODEL}, api_base: {URL}/v1, supports_schema: true}}\n"
)
(Path(folder.name) / "keys.json").write_text('{"openai": "none"}')

import llm  # noqa: E402 - reads the folder

model = llm.get_model("pumice")


run(
    chat=lambda: model.prompt("Once upon a time", max_tokens=10, stream=False).text(),
    # A slow reader gets several tokens at once.
    stream=lambda: len(list(model.prompt("Once upon a time", max_tokens=100))) > 1,
    structured=lambda: json.loads(model.prompt("Once", schema=SCHEMA, stream=False).text())["city"],
)
