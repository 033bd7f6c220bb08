"""The demo model's vocabulary, for grammars."""

import pytest

import pumice
from pumice.grammar import Compiler


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    tokenizer = pumice.load_tokenizer(pumice.demo_model_path())
    return Compiler(lambda: tokenizer, tokenizer.n_vocab)
