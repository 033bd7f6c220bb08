"""How fast text becomes tokens, and tokens text; next to llama.cpp where llama-cpp-python is installed.

python bench/tokenizer_speed.py [VOCABULARY.gguf ...]      default: those of ../shared/vocabs
"""

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pumice.gguf import GGUFFile
from pumice.tokenizers import from_metadata

VOCABULARIES = Path(__file__).resolve().parents[2] / "shared" / "vocabs"
REPEATS = 5
_KEPT: list[Any] = []

PARAGRAPH = (
    "The quick brown fox, who couldn't care less, jumped over 13 lazy dogs (2024-05-17, 07:45).\n"
    "    for i in range(1024):  # an_identifier, CamelCase and naïve façades\n"
    "        total += weights[i] * inputs[i]\n\n"
    "Größe über alles; être ou ne pas être? Быстрая лиса прыгает. 敏捷的狐狸跳过懒狗。 素早い狐 🦊🐕\n"
)


def varied(size: int) -> str:
    """``size`` characters of prose and code in several languages, in which few words repeat."""
    words = PARAGRAPH.split(" ")
    mixed = [word[::-1] if (i // len(words)) % 2 else word for i, word in enumerate(words * (size // 5))]
    return " ".join(f"{word}{i % 97}" if i % 3 == 0 else word for i, word in enumerate(mixed))[:size]


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def pumice(metadata: dict[str, Any], text: str) -> tuple[float, ...]:
    """Seconds to build a tokenizer, to tokenize ``text``, to do so again (words are remembered), and back."""
    start = time.perf_counter()
    tokenizer = from_metadata(metadata)
    build = time.perf_counter() - start
    first = seconds(lambda: tokenizer.tokenize(text))
    again = seconds(lambda: tokenizer.tokenize(text))
    ids = tokenizer.tokenize(text)
    return build, first, again, seconds(lambda: tokenizer.detokenize(ids))


def llama_cpp(path: Path, text: str) -> tuple[float, float]:
    """Seconds to load the vocabulary and to tokenize ``text``."""
    from llama_cpp import llama_cpp as api

    params = api.llama_model_default_params()
    params.vocab_only = True
    start = time.perf_counter()
    model = api.llama_model_load_from_file(str(path).encode(), params)
    load = time.perf_counter() - start
    vocab, data = api.llama_model_get_vocab(model), text.encode()
    ids = (ctypes.c_int32 * len(data))()
    run = seconds(lambda: api.llama_tokenize(vocab, data, len(data), ids, len(ids), False, True))
    api.llama_model_free(model)
    return load, run


def peer_installed() -> bool:
    try:
        from llama_cpp import llama_cpp as api
    except ImportError:
        return False
    quiet = api.llama_log_callback(lambda level, message, data: None)
    api.llama_log_set(quiet, None)
    _KEPT.append(quiet)  # llama.cpp holds a pointer to it
    api.llama_backend_init()
    return True


def main() -> None:
    text = varied(100_000)
    size = len(text.encode()) / 1e6
    compare = peer_installed()
    print(f"{size:.3f} MB of text, best of {REPEATS}; build and load in ms, the rest in MB/s")
    print(
        f"{'vocabulary':24} {'build':>6} {'first':>6} {'again':>6} {'back':>6}"
        + "   llama.cpp: load, tokenize" * compare
    )
    for path in map(Path, sys.argv[1:] or sorted(VOCABULARIES.glob("*.gguf"))):
        with GGUFFile.open(path) as file:
            metadata = dict(file.metadata)
        build, *runs = map(min, zip(*(pumice(metadata, text) for _ in range(REPEATS)), strict=True))
        line = f"{path.stem:24} {build * 1e3:6.0f} " + " ".join(f"{size / run:6.1f}" for run in runs)
        if compare:
            load, run = map(min, zip(*(llama_cpp(path, text) for _ in range(REPEATS)), strict=True))
            line += f"   {load * 1e3:15.0f} {size / run:9.1f}"
        print(line)


if __name__ == "__main__":
    main()
