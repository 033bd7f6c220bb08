"""Make core/pumice/convert/usual.json: the defaults of transformers' configurations, of the keys that conversions read.

    python tests/make_fixtures/usual.py

The other keys are listed in tests/fixtures/conversions/unread.json: once a conversion reads one, make the table again.
A model type has the values of its class, for each section the section's own type, and the class of a model that
continues texts.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

import transformers  # noqa: E402
from huggingface_hub.errors import StrictDataclassError  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from make_fixtures.read_keys import ROOT, SOURCES, UNREAD, read_keys  # noqa: E402
from pumice_architectures.conversions import CONVERSIONS, PROJECTORS  # noqa: E402

USUAL = ROOT / SOURCES[0] / "usual.json"
NO_VALUES = {"model_type", "initializer_range", "vocab_size"}  # the embeddings' rows count


def main() -> None:
    read = read_keys()
    table: dict[str, dict[str, Any]] = {}
    unread: set[str] = set()
    models = {name.lower(): name for name in dir(transformers)}
    for name in sorted({*CONVERSIONS, *PROJECTORS}):
        if model := getattr(transformers, models.get(name.lower(), ""), None):
            add(model.config_class, read - NO_VALUES, table, unread)
    lines = [f"{json.dumps(kind)}: {json.dumps(values)}" for kind, values in sorted(table.items())]
    USUAL.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    UNREAD.write_text(json.dumps(sorted(unread - NO_VALUES)) + "\n")


def add(config: Any, read: set[str], table: dict[str, dict[str, Any]], unread: set[str]) -> None:
    """Add a class of configurations and those of its sections."""
    if config.model_type in table:
        return
    defaults = {field.name: field.default for field in fields(config)}
    defaults |= {theirs: defaults[ours] for ours, theirs in config.attribute_map.items() if ours in defaults}
    values = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in defaults.items()
        if isinstance(value, (bool, int, float, str, list, tuple)) and value != "auto" and not key.endswith("_token_id")
    }  # fmt: skip
    unread |= values.keys() - read
    values = {key: value for key, value in values.items() if key in read}
    if (name := MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)) in CONVERSIONS:
        values["class"] = name
    table[config.model_type] = values
    try:
        made = config()
    except StrictDataclassError as error:  # defaults that do not fit together
        print(config.model_type, str(error).splitlines()[-1])
        return
    if rope := getattr(made, "rope_parameters", None):
        if (
            "factor" in rope and config(rope_theta=1.0).rope_parameters["rope_theta"] == 1.0
        ):  # a base beside the section
            rope = {key: value for key, value in rope.items() if key != "rope_theta"}
        values |= rope_of(rope, config.default_theta)
    for name, section in config.sub_configs.items():
        section = type(getattr(made, name)) if section is transformers.AutoConfig else section
        if getattr(section, "model_type", "") and name in read:
            values[name] = section.model_type
            add(section, read, table, unread)


def rope_of(rope: dict[str, Any], base: Any) -> dict[str, Any]:
    """Return the settings of RoPE: keys of the configuration itself if they are bases and parts, else a section, too.

    Args:
        rope: settings of a configuration that has no values.
        base: base of the class for sections without one.
    """
    kinds = {"full_attention": "rope_theta", "sliding_attention": "local_rope_theta"}
    if isinstance(base, dict):
        return {kinds[kind]: part["rope_theta"] for kind, part in rope.items()}
    values = {"rope_theta": base, "partial_rotary_factor": rope.get("partial_rotary_factor", 1.0)}
    is_plain = {*rope} <= {"rope_type", "rope_theta", "partial_rotary_factor"} and rope.get("rope_theta", base) == base
    return values if is_plain else values | {"rope_parameters": rope}


if __name__ == "__main__":
    main()
