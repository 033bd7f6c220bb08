"""Make tests/fixtures/tokenizers/*.json again: the ids that llama.cpp gives for the texts of small vocabularies.

    pip install gguf llama-cpp-python
    python tests/make_fixtures/make_tokenizers.py

A file holds the ``metadata`` of a GGUF file, ``cases`` (a text, its ids with parse_special, and its ids with
add_special) and what each token prints. ``pre.json`` has the ids that every pre-tokenizer makes of the same texts.
A new vocabulary begins as a file with its metadata, and cases that are texts alone: ``["a text"]``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from llama_vocab import LlamaVocab  # noqa: E402

OUT = ROOT / "tests" / "fixtures" / "tokenizers"


def main() -> None:
    for path in sorted(OUT.glob("*.json")):
        if path.stem != "pre":
            stored = json.loads(path.read_text())
            reference = Reference.from_metadata(stored["metadata"])
            cases = [[text, reference.ids(text)] for text, *_ in stored["cases"]]
            write(path.stem, {"metadata": stored["metadata"], "info": reference.info(), "cases": cases})
    write("pre", pre(json.loads((OUT / "pre.json").read_text())["texts"]))


def write(name: str, content: Any) -> None:
    (OUT / f"{name}.json").write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=True) + "\n")


class Reference(LlamaVocab):
    """Facts of llama.cpp's tokenizer in a fixture."""

    def ids(self, text: str) -> list[list[int]]:
        return [self.tokenize(text, add_special, not add_special) for add_special in (False, True)]

    def info(self) -> dict[str, Any]:
        n = llama_cpp.llama_vocab_n_tokens(self.vocab)
        return {
            "bos": llama_cpp.llama_vocab_bos(self.vocab),
            "eos": llama_cpp.llama_vocab_eos(self.vocab),
            "add_bos": llama_cpp.llama_vocab_get_add_bos(self.vocab),
            "add_eos": llama_cpp.llama_vocab_get_add_eos(self.vocab),
            "add_sep": llama_cpp.llama_vocab_get_add_sep(self.vocab),
            "eog": [i for i in range(n) if llama_cpp.llama_vocab_is_eog(self.vocab, i)],
            "pieces": [[i, self._text(i, False), self._text(i, True)] for i in (*range(0, n, 9), *range(n - 9, n))],
        }

    def _text(self, token: int, special: bool) -> str:
        return self.piece(token, special).decode("latin-1")


def pre(texts: list[str]) -> dict[str, Any]:
    """For every pre-tokenizer of Pumice's table: the ids of all texts, joined to one list a text."""
    from pumice.tokenizers.pre_tokenizers import ROWS

    metadata = json.loads((OUT / "bpe.json").read_text())["metadata"]
    expected: list[Any] = []
    names: dict[str, int] = {}
    for row in ROWS:
        for name in row.names if row.byte_level else ():
            reference = Reference.from_metadata(metadata | {"tokenizer.ggml.pre": name})
            found = [reference.ids(text)[1] for text in texts]
            if found not in expected:
                expected.append(found)
            names[name] = expected.index(found)
    return {"texts": texts, "names": names, "expected": expected}


if __name__ == "__main__":
    main()
