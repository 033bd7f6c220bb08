"""What chats need and a tokenizer's own files do not say: the template beside them, further tokens that end a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.tokens import added_ids
from pumice.convert.written import reading
from pumice.gguf import encode
from pumice.tokenizers.special import END_OF_GENERATION

TEMPLATE = "chat_template.jinja"
GENERATION = "generation_config.json"
KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))  # of tokens that end


def chat_keys(folder: Folder, found: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that go before those that were ``found``, or beside them."""
    return _template(folder) | _ends(folder, found)


def _template(folder: Folder) -> dict[str, str]:
    """The file goes before ``tokenizer_config.json``, as it does in the package transformers."""
    if not folder.has(TEMPLATE):
        return {}
    with reading(folder.path):
        return {"tokenizer.chat_template": (folder.path / TEMPLATE).read_text("utf-8")}


def _ends(folder: Folder, found: Mapping[str, Any]) -> dict[str, int]:
    """Tokens that end a text by the generation's configuration; those that are known by their text need no key."""
    said = folder.optional_json(GENERATION).get("eos_token_id")
    texts = {id: text for text, id in added_ids(folder).items()}
    known = [encode(found[key]) for key in KEYS if key in found]
    further = [
        id
        for id in (said if isinstance(said, list) else [said])
        if type(id) is int and id in texts and texts[id] not in END_OF_GENERATION and encode(id) not in known
    ]
    return dict(zip((key for key in KEYS if key not in found), further, strict=False))
