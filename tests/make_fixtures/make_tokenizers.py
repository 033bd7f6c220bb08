"""Make tests/fixtures/tokenizers/*.json: small vocabularies, and the ids that llama.cpp gives for some texts.

    pip install gguf tokenizers sentencepiece protobuf llama-cpp-python
    python tests/make_fixtures/make_tokenizers.py

A file holds the ``metadata`` of a GGUF file, ``cases`` (a text, its ids with parse_special, and its ids with
add_special) and what each token prints. ``pre.json`` has the ids that every pre-tokenizer makes of the same texts.
"""

import json
import sys
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp
from vocabularies import MORE_TEXTS, TEXTS, VOCABULARIES, bpe, random_texts

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from llama_vocab import LlamaVocab  # noqa: E402

OUT = ROOT / "tests" / "fixtures" / "tokenizers"


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name, make in VOCABULARIES.items():
        metadata = make()
        reference = Reference.from_metadata(metadata)
        cases = [[text, reference.ids(text)] for text in TEXTS + MORE_TEXTS.get(name, []) + random_texts(25)]
        write(name, {"metadata": metadata, "info": reference.info(), "cases": cases})
    write("pre", pre())


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


def pre() -> dict[str, Any]:
    """For every pre-tokenizer of Pumice's table: the ids of all texts, joined to one list a text."""
    from pumice.tokenizers.pre_tokenizers import ROWS

    metadata = bpe()
    expected: list[Any] = []
    names: dict[str, int] = {}
    for row in ROWS:
        for name in row.names if row.byte_level else ():
            reference = Reference.from_metadata(metadata | {"tokenizer.ggml.pre": name})
            found = [reference.ids(text)[1] for text in TEXTS]
            if found not in expected:
                expected.append(found)
            names[name] = expected.index(found)
    return {"texts": TEXTS, "names": names, "expected": expected}


if __name__ == "__main__":
    main()
