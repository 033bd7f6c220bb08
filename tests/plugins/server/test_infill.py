"""Fill-in-the-middle: the order of the parts, as llama-server has it, and who cannot."""

from functools import partial
from types import SimpleNamespace

import pytest
from starlette.exceptions import HTTPException

from pumice.tokenizers import Tokenizer
from pumice_server.protocols.llama_server.bodies import InfillBody
from pumice_server.protocols.llama_server.infill import infill_tokens

MARKS = {"fim_pre": 1001, "fim_suf": 1002, "fim_mid": 1003}
EXTRA = {"input_prefix": "a", "input_suffix": "b", "prompt": "p", "input_extra": [{"filename": "f", "text": "t"}]}


class Letters:
    """A service whose tokens are letters."""

    def __init__(self, **fim: int) -> None:
        tokenizer = SimpleNamespace(fim=MARKS | fim, bos=1, add_bos=True)
        tokenizer.fill_in = partial(Tokenizer.fill_in, tokenizer)
        self.model = SimpleNamespace(tokenizer=tokenizer, n_ctx=512)

    def tokens_of(self, text: str | list[int], add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        return [ord(letter) for letter in text] if isinstance(text, str) else text


def tokens(service: Letters, **body) -> str:
    spelt = {1: "<s>", 1001: "<pre>", 1002: "<suf>", 1003: "<mid>", 1004: "<rep>", 1005: "<sep>"}
    found = infill_tokens(InfillBody.of(body), service)
    return "".join(spelt.get(token) or chr(token) for token in found)


def test_the_order_of_the_parts():
    assert tokens(Letters(), input_prefix="a", input_suffix="b", prompt="p") == "<s><pre>ap<suf>b<mid>"
    assert tokens(Letters(), **EXTRA) == "\n\n--- snippet ---\n\nt<s><pre>ap<suf>b<mid>"
    of_files = tokens(Letters(fim_rep=1004, fim_sep=1005), **EXTRA)
    assert of_files == "<rep>myproject\n<sep>f\nt<sep>filename\n<s><pre>ap<suf>b<mid>"
    assert tokens(Letters(), input_prefix=["a", 1003], input_suffix="") == "<s><pre>a<mid><suf><mid>"


def test_wrong_parts():
    for body in ({"input_extra": 5}, {"input_extra": [5]}, {"input_extra": [{"text": 5}]}, {"input_prefix": [True]}):
        with pytest.raises(HTTPException, match="input_"):
            tokens(Letters(), **({"input_prefix": "a", "input_suffix": "b"} | body))
