"""Metadata for chats from files beside the tokenizer's: chat template and further end tokens."""

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
KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))  # end tokens


def chat_keys(folder: Folder, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata of the chat template and the end tokens, which overrides ``keys`` of the tokenizer."""
    return _template(folder) | _ends(folder, keys)


def _template(folder: Folder) -> dict[str, str]:
    """Return the template of the file, which takes precedence over ``tokenizer_config.json`` as in transformers."""
    if not folder.has(TEMPLATE):
        return {}
    with reading(folder.path):
        return {"tokenizer.chat_template": (folder.path / TEMPLATE).read_text("utf-8-sig")}


def _ends(folder: Folder, keys: Mapping[str, Any]) -> dict[str, int]:
    """Return keys for the end tokens of the generation configuration that are not recognized by their text."""
    ids = folder.optional_json(GENERATION).get("eos_token_id")
    texts = {id: text for text, id in added_ids(folder).items()}
    recognized = [encode(keys[key]) for key in KEYS if key in keys]
    further = [
        id
        for id in (ids if isinstance(ids, list) else [ids])
        if type(id) is int and id in texts and texts[id] not in END_OF_GENERATION and encode(id) not in recognized
    ]
    return dict(zip((key for key in KEYS if key not in keys), further, strict=False))
