"""`Folder`: a model saved by Hugging Face's libraries, with configuration, tokenizer and safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from pumice.convert.ctranslate2 import MODEL, read_ctranslate2
from pumice.convert.lazy import LazyTensor
from pumice.convert.safetensors import read_safetensors
from pumice.convert.usual import usual
from pumice.errors import ConvertError
from pumice.file_names import is_safe_file_name
from pumice.wording import json_problem

CONFIG, WEIGHTS, INDEX = "config.json", "model*.safetensors", "model.safetensors.index.json"
MAX_JSON_BYTES = 1 << 28  # of one file, far above any tokenizer
MAX_INTEGER = (1 << 31) - 1  # in a configuration

ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function", "activation")
SAME_ACTIVATIONS = ({"silu", "swish", "swiglu"}, {"gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh"})
TEXT_PARTS = (
    "text_config", "llm_config", "lm_config", "language_config", "lfm", "thinker_config", "transformer_layer_config",
)  # fmt: skip
REPLACED = {  # keys without a default if the configuration has one of others
    "rope_parameters": ("rope_scaling", "rope_theta"),
    "partial_rotary_factor": ("rotary_dim", "qk_rope_head_dim"),
}
ROPE_SECTIONS = ("rope_parameters", "rope_scaling")  # null is none
TRAINED_SHORTER = ("llama3", "longrope", "su", "yarn")  # types of RoPE that depend on the context of training
LOCAL_ROPE = ("local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq")
ROPE = {  # settings outside of their section: name there -> names in the configuration
    "rope_theta": ("global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rope_pct", "rope_percent"),
    "original_max_position_embeddings": ("original_max_position_embeddings",),
}
# Classes that have a conversion of their own although their text part names another class.
OUTER_CLASSES = {
    "StepVLForConditionalGeneration", "Sarashina2VisionForCausalLM", "Exaone4_5_ForConditionalGeneration",
    "Step3p7ForConditionalGeneration", "KimiK3ForConditionalGeneration", "Eagle3Speculator", "Eagle3DraftModel",
    "DSparkSpeculator", "DSparkDraftModel", "DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM",
    "UnlimitedOCRForCausalLM",
}  # fmt: skip


class HFConfig(Mapping[str, Any]):
    """The values of ``config.json``; those of the nested text configuration replace the outer ones.

    What it and its sections leave out has transformers' defaults.

    Attributes:
        path: path of the file, for messages.
        part: name of the section that the values are of, for messages; empty for the whole file.
        last: most recently looked up key, for messages.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], part: str = "", kind: Any = None) -> None:
        self.path = path
        self.part = part
        self.last = ""
        self._outer = values
        self._inner = _text_part(values)
        given = {**values, **self._inner}
        self._given = {key: value for key, value in given.items() if value or key not in ROPE_SECTIONS}
        own = usual(kind or values.get("model_type"))
        name = next((name for name in TEXT_PARTS if isinstance(own.get(name), str)), "")
        self._kinds = {key: kind for key, kind in own.items() if key.endswith("_config")}
        self._usual = {**own, **usual(self._kind(name, self._inner))}
        self._leave_out()
        self._values = {**self._usual, **self._given}

    def _kind(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the type of a section: its own, or the class's if that is unknown or the type of the whole model."""
        kind = values.get("model_type")
        return kind if usual(kind) and kind != self._outer.get("model_type") else self._kinds.get(name, kind)

    def _leave_out(self) -> None:
        """Drop defaults of keys for which the configuration has others."""
        is_scaled = "factor" in self._usual.get("rope_parameters", ())  # whatever base the configuration has
        for key, others in REPLACED.items():
            if any(other in self._given for other in others if not (is_scaled and other == "rope_theta")):
                self._usual.pop(key, None)
        if isinstance(kinds := self._given.get("mlp_layer_types"), list):
            self._usual["first_k_dense_replace"] = len(list(takewhile(lambda kind: kind == "dense", kinds)))

    def __getitem__(self, key: str) -> Any:
        self.last = key
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, more: Mapping[str, Any]) -> HFConfig:
        """Return the configuration with some values replaced."""
        changed = HFConfig(self.path, self._outer, self.part)
        changed._kinds, changed._usual, changed._given = self._kinds, self._usual, {**self._given, **more}
        changed._values = {**self._values, **more}
        return changed

    @property
    def model_class(self) -> str:
        """The class name in ``architectures``, of the text part if it has one: the name of a conversion."""
        both = (self._inner, self._outer)
        for values in both if _class_of(self._outer) not in OUTER_CLASSES else both[::-1]:
            if name := _class_of(values):
                return name
        raise ConvertError(f"{self.path}: 'architectures' is missing; it must name the model's class")

    @property
    def outer_class(self) -> str:
        """The class name in ``architectures`` of the whole model; empty without one."""
        return _class_of(self._outer) or ""

    @property
    def text_class(self) -> str:
        """The class of a text part that names none, by its type; empty without a text part or a known type."""
        return str(self._usual.get("class", "")) if self._inner else ""

    def section(self, name: str, needed_for: str = "") -> HFConfig:
        """Return the values of a section. Raises ConvertError if it is missing."""
        values = self.get(name)
        if not isinstance(values, dict):
            raise ConvertError(f"{self.path}: {name!r} is missing{needed_for and f'; {needed_for}'}")
        return HFConfig(self.path, values, name, self._kind(name, values))

    def named(self, key: str) -> str:
        """Return a key as messages have it: in quotes, and with its section."""
        return f"{key!r} in {self.part!r}" if self.part else repr(key)

    def unsupported(self, key: str, expected: str) -> ConvertError:
        """Return the error for the value of a key, which is not what is ``expected``."""
        return ConvertError(f"{self.path}: unsupported {self.named(key)}: {self.get(key)!r:.200}, expected {expected}")

    def expect(self, key: str, value: Any) -> None:
        """Raise ConvertError if a key has another value than this one; the key may be missing."""
        actual = self.get(key, value)
        if actual != value and (actual is not None or value):
            raise self.unsupported(key, repr(value))

    def expect_activation(self, name: str, *keys: str) -> None:
        """Raise ConvertError if a key (default: the usual ones) names another activation; GELU's formulas are one."""
        same = next((names for names in SAME_ACTIVATIONS if name in names), {name})
        for key in self.stated(*keys or ACTIVATION_KEYS):
            if isinstance(actual := self.get(key), str) and actual not in same:
                raise self.unsupported(key, repr(name))

    def first(self, *keys: str) -> Any:
        """Return the value of the first of ``keys`` that is present and not null, or None.

        A default counts if the configuration has none of them, and null is a value.
        """
        return next((self[key] for key in self.stated(*keys) if self[key] is not None), None)

    def stated(self, *keys: str) -> list[str]:
        """Return those of ``keys`` that the configuration has, or else those that have defaults."""
        return [key for key in keys if key in self._given] or [key for key in keys if key in self._usual]

    def need(self, *keys: str, least: int = 1, most: int = MAX_INTEGER) -> int:
        """Return the integer of the first present key. Raises ConvertError unless it is from ``least`` to ``most``."""
        value = self.first(*keys)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            expected = f"of at least {least}" if most == MAX_INTEGER else f"from {least} to {most}"
            problem = "is missing" if value is None else f"is {value!r}, expected an integer {expected}"
            raise ConvertError(f"{self.path}: {self.named(keys[0])} {problem}")
        return value

    def counts(self, *keys: str) -> int | list[int]:
        """Return a count, or a list of counts if layers differ. Raises ConvertError unless they are 0 or more."""
        value = self.first(*keys)
        if isinstance(value, list) and value and all(type(item) is int and 0 <= item <= MAX_INTEGER for item in value):
            return value
        return self.need(*keys, least=0)

    def has_default(self, key: str) -> bool:
        """Return True if transformers' class of the configuration has a default for a key."""
        return key in self._usual

    def n_vocab(self, n_tokens: int) -> int:
        """Return the rows of the token embeddings, or ``n_tokens`` without ``vocab_size``."""
        return n_tokens if self.first("vocab_size") is None else self.need("vocab_size")

    @property
    def rope_key(self) -> str:
        """The name of the section with the settings of RoPE."""
        return "rope_scaling" if self.get("rope_parameters") is None and "rope_scaling" in self else "rope_parameters"

    @cached_property
    def rope(self) -> dict[str, Any]:
        """The settings of RoPE from all places in the configuration, under one name each."""
        section = self.get(self.rope_key)
        rope = dict(section) if isinstance(section, dict) else {}
        local, base = self.first(*LOCAL_ROPE), self.first(*ROPE["rope_theta"])
        bases = {"full_attention": base, "sliding_attention": base if local is None else local}
        if rope.keys() & bases.keys():
            for kind in bases if local is not None else rope.keys() & bases.keys():
                if bases[kind] is not None and isinstance(rope.setdefault(kind, {}), dict):
                    rope[kind] = {"rope_theta": bases[kind], **rope[kind]}
            return rope
        if local is not None:
            rope["sliding_attention"] = {"rope_theta": local}
        rope.setdefault("rope_type", rope.get("type"))
        for key, names in ROPE.items():
            rope.setdefault(key, self.first(*names))
        if rope["rope_type"] in TRAINED_SHORTER and not rope["original_max_position_embeddings"]:
            rope["original_max_position_embeddings"] = self.first("max_position_embeddings")
        return {key: value for key, value in rope.items() if value is not None}

    @property
    def whole_rope(self) -> dict[str, Any]:
        """The settings of RoPE for layers without a sliding window."""
        part = self.rope.get("full_attention", self.rope)
        return part if isinstance(part, dict) else {}


@contextmanager
def understood(config: HFConfig) -> Iterator[None]:
    """Turn a conversion's errors from unexpected values into a ConvertError that names the last key read."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        hint = f", perhaps since {config.last!r} is {config.first(config.last)!r}" if config.last else ""
        raise ConvertError(
            f"{config.path}: the configuration is not understood{hint}: {type(error).__name__}: {error}"
        ) from error


class Folder:
    """A model's folder. Files are read on first use. Raises ConvertError for missing or invalid files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not self.has(CONFIG) and not next(path.glob(WEIGHTS), None):
            raise self.unknown()
        self.config = HFConfig(path / CONFIG, self.optional_json(CONFIG))

    def unknown(self) -> ConvertError:
        """Return the error for a folder that is not a model's."""
        return ConvertError(
            f"{self.path}: the folder has no {CONFIG}; give a GGUF file or the folder of a Hugging Face model"
        )

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file of the folder."""
        return read_json(self.path / name)

    def optional_json(self, name: str) -> dict[str, Any]:
        """Like ``json``, but empty if the file does not exist."""
        return self.json(name) if self.has(name) else {}

    @property
    def model_class(self) -> str:
        """The name of the model's class, by which a conversion is registered."""
        if "architectures" not in self.config and self.has(MODEL):
            return self.ctranslate2[0]
        return self.config.model_class

    @cached_property
    def ctranslate2(self) -> tuple[str, dict[str, LazyTensor]]:
        """The class of a model that CTranslate2 has stored, such as ``WhisperSpec``, and its tensors by name."""
        return read_ctranslate2(self.path / MODEL)

    @cached_property
    def tensors(self) -> dict[str, LazyTensor]:
        """All tensors by name, as stored."""
        tensors: dict[str, LazyTensor] = {}
        for path in self._files():
            for name, tensor in read_safetensors(path).items():
                if name in tensors:
                    raise ConvertError(f"{path}: tensor {name!r} occurs in another file, too")
                tensors[name] = tensor
        if self.has(INDEX) and (missing := self._indexed() - tensors.keys()):
            raise ConvertError(f"{self.path}: {len(missing)} tensors are missing, {sorted(missing)[0]!r} among them")
        return tensors

    def tensors_of(self, name: str) -> dict[str, LazyTensor]:
        """Return the tensors of one file, such as a module that follows the model."""
        return dict(read_safetensors(self.path / name))

    def _indexed(self) -> set[str]:
        index = self.json(INDEX).get("weight_map")
        return set(index) if isinstance(index, dict) else set()

    def _files(self) -> list[Path]:
        if self.has(INDEX):
            index = self.json(INDEX).get("weight_map")
            names = sorted(set(map(str, index.values()))) if isinstance(index, dict) else []
            if wrong := next((name for name in names if "/" in name or not is_safe_file_name(name)), None):
                raise ConvertError(f"{self.path / INDEX}: {wrong!r:.100} is not the name of a file in the folder")
            return [self.path / name for name in names]
        paths = sorted(self.path.glob(WEIGHTS))
        if not paths:
            pickled = next((path.name for path in self.path.glob("*.bin")), None)
            because = (
                f"; {pickled} is not opened, since pickled files can run code; save the model as safetensors"
                if pickled
                else ""
            )
            raise ConvertError(f"{self.path}: the folder has no {WEIGHTS}{because}")
        return paths


def _text_part(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested text configuration, or an empty one."""
    part: dict[str, Any] = next((values[name] for name in TEXT_PARTS if isinstance(values.get(name), dict)), {})
    inner = part.get("text_config")
    return dict(inner if isinstance(inner, dict) else part)


def _class_of(values: Mapping[str, Any]) -> str:
    names = values.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ConvertError."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ConvertError(f"{path}: the file is larger than {MAX_JSON_BYTES >> 20} MiB")
        value = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConvertError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{path}: not valid JSON: {json_problem(error)}") from None
    if not isinstance(value, dict):
        raise ConvertError(f"{path}: expected a JSON object")
    return value
