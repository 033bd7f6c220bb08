"""Parts of messages: suggested names, documentation pages, sizes, printable forms of untrusted text."""

import difflib
import reprlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from unicodedata import category

_MAX_COMPARED = 100  # compared characters of a name, since comparing takes quadratic time
_MAX_LISTED = 64  # maximum names in a message
_MAX_BESIDE_HINT = 12  # names in a message that suggests one of them
_MAX_BITS = 1024  # of an integer whose digits a message shows
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode categories

_ELSEWHERE = {
    "backend": {"cuda": "vulkan", "rocm": "vulkan", "hip": "vulkan", "sycl": "vulkan", "gpu": "vulkan", "metal": "mlx"},
    "llama-cpp-python": {
        "n_ubatch": "n_batch", "type_k": "kv_type", "type_v": "kv_type", "use_mmap": "mmap", "use_mlock": "mlock",
        "chat_format": "chat_template", "lora_path": "adapters", "draft_model": "draft", "mirostat_mode": "mirostat",
    },
    "llama.cpp": {"ctx_size": "n_ctx", "cache_type_k": "kv_type", "cache_type_v": "kv_type", "n_predict": "max_tokens"},
    "Ollama": {"num_ctx": "n_ctx", "num_predict": "max_tokens", "num_gpu": "n_gpu_layers"},
    "transformers and vLLM": {
        "max_new_tokens": "max_tokens", "repetition_penalty": "repeat_penalty", "stop_strings": "stop",
        "stop_sequences": "stop", "max_model_len": "n_ctx", "max_num_seqs": "n_parallel", "top_logprobs": "logprobs",
    },
}  # fmt: skip
"""Names that other programs give to what has another name here."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'temperature'?"``, or ``""`` if no known name is near.

    A known name is near if another program calls it ``name``, if ``name`` begins it, if it is the first word of
    ``name``, or if their letters are alike.
    """
    names = list(known)
    same = [ours for others in _ELSEWHERE.values() if (ours := others.get(name.lower(), "")) in names]
    longer = sorted((other for other in names if name and other.startswith(name)), key=len)
    shorter = sorted((other for other in names if other and name.startswith(f"{other}_")), key=len, reverse=True)
    compared = [other[:_MAX_COMPARED] for other in names]
    close = same or longer or shorter or difflib.get_close_matches(name[:_MAX_COMPARED], compared, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return where bytes are not UTF-8, and advice for UTF-16, which Windows PowerShell writes."""
    is_utf16 = error.object.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    return f"not UTF-8: byte {error.start}" + ("; it seems to be UTF-16: save it as UTF-8" if is_utf16 else "")


def unknown_name(kind: str, name: str, known: Iterable[str], never: Collection[str] = ()) -> str:
    """Return one line about an unknown name, with a suggestion and the known names, unless they are many.

    Args:
        kind: noun for the named object, such as "option".
        name: the unknown name.
        known: all known names; a registry's also tell of the plugins that are ``absent``.
        never: known names that are never suggested.
    """
    names = sorted(known)
    hint = did_you_mean(name, [other for other in names if other not in never])
    absent = getattr(known, "absent", "")
    if hint and len(names) > _MAX_BESIDE_HINT:
        return f"unknown {kind} {name[:_MAX_COMPARED]!r}{hint}{absent}"
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    return f"unknown {kind} {name[:_MAX_COMPARED]!r}{hint} (known: {listed or 'none'}){absent}"


def counted_as(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 chunk"``, ``"2 chunks"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def alternatives(names: Sequence[str]) -> str:
    """Return names to choose from: ``"PNG, JPEG or GIF"``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def documentation_page(name: str) -> str:
    """Return the path of ``docs/<name>``: inside the installed package, or at the root of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "docs" / name
    return str(installed if installed.exists() else package.parents[1] / "docs" / name)


class ShortRepr(reprlib.Repr):
    """Shortens values like ``reprlib``, however large or deep they are; long integers become their number of bits."""

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > _MAX_BITS:  # Python writes no integers of more than sys.get_int_max_str_digits() digits
            return f"an integer of {x.bit_length()} bits"
        return super().repr_int(x, level)


class JsonRepr(ShortRepr):
    """Shortens values with JSON's words for None, True and False."""

    def repr1(self, x: object, level: int) -> str:
        if x is None or isinstance(x, bool):
            return "null" if x is None else "true" if x else "false"
        return super().repr1(x, level)


_JSON = JsonRepr()
_PYTHON = ShortRepr()
_PYTHON.maxstring = _PYTHON.maxother = 60


def show_value(value: object, most: int = 60) -> str:
    """Return a value of a request for a message, of at most ``most`` characters."""
    return _JSON.repr(value)[:most]


def show_python(value: object) -> str:
    """Return a value of a Python call for a message, of at most 60 characters."""
    return _PYTHON.repr(value)[:60]


def json_problem(error: Exception) -> str:
    """Return one line about a text that is not JSON; Python's advice on long integers is for programs."""
    if "integer string conversion" in str(error):
        return "an integer has too many digits"
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str, layout: str = "") -> str:
    """Return ``text`` with ``?`` for each unprintable character, so that a log or a terminal shows it safely.

    Those are controls, characters that are hidden or change the direction of text, and halves of surrogate pairs.
    ``layout``: control characters to keep. Spaces of any width stay.
    """
    if text.isprintable():
        return text
    return "".join(mark if mark in layout or category(mark) not in _UNSEEN else "?" for mark in text)


def format_bytes(n: int) -> str:
    """Format a number of bytes in the largest binary unit that leaves at least 1."""
    power = max(min((n.bit_length() - 1) // 10, 4), 0)
    unit = ["bytes", "KiB", "MiB", "GiB", "TiB"][power]
    return f"{n / 2 ** (10 * power):.{1 if power else 0}f} {unit}"
