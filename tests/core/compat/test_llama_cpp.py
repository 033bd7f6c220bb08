"""``pumice.compat.llama_cpp.Llama`` beside results of llama-cpp-python (tests/make_fixtures/README.md)."""

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hub_server
import pumice
from demo_models import CHAT_TEMPLATE, write_demo_model
from pumice.compat.llama_cpp import (
    Llama,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from pumice.gguf import GGMLType

TESTS = Path(__file__).parents[2]
EXPECTED = json.loads((TESTS / "fixtures" / "llama_cpp_results.json").read_text())
MAKER = runpy.run_path(str(TESTS / "make_fixtures" / "llama_cpp_results.py"))
PROMPT = "Once upon a time"
PATH = str(pumice.demo_model_path())
GREEDY: Any = {"temperature": 0, "max_tokens": 6}
CONSTRAINED = {"object", "call"}  # JSON has other spaces, calls are shown to the model, and have other ids


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return str(write_demo_model(folder / "demo.gguf", GGMLType.F32, template=CHAT_TEMPLATE))


@pytest.fixture(scope="module")
def llm(path: str) -> Iterator[Llama]:
    llm = Llama(path, n_ctx=512, logits_all=True, verbose=False, type_k=0, type_v=0)
    yield llm
    llm.close()


@pytest.fixture(scope="module")
def answers(llm: Llama) -> dict[str, Any]:
    return json.loads(json.dumps(MAKER["results"](llm)))


def keys(value: object) -> object:
    """Return the shape of a result: its keys, and types instead of values."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [keys(item) for item in value[:1]]
    return type(value).__name__


@pytest.mark.parametrize("name", [name for name in MAKER["CALLS"] if name not in CONSTRAINED])
def test_a_result_is_that_of_llama_cpp_python(answers, name):
    if name != "parts of a chat":
        assert_equal(answers[name], EXPECTED[name], name)
        return
    assert_equal(whole(answers[name]), whole(EXPECTED[name]), name)  # parts may hold several tokens


def whole(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first and the last part of a chat's stream, and between them one with all texts."""
    first, *inner, last = parts
    text = "".join(part["choices"][0]["delta"]["content"] for part in inner)
    choice = {**inner[0]["choices"][0], "delta": {"content": text}}
    return [first, {**inner[0], "choices": [choice]}, last]


def assert_equal(ours: Any, theirs: Any, where: str) -> None:
    """Compare results: all but log-probabilities exactly."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key, value in theirs.items():
            assert_equal(ours[key], value, f"{where}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for index, value in enumerate(theirs):
            assert_equal(ours[index], value, f"{where}[{index}]")
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=1e-4), where
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("name", sorted(CONSTRAINED))
def test_a_constrained_result_has_the_keys_of_llama_cpp_python(answers, name):
    assert keys(answers[name]) == keys(EXPECTED[name])
    (choice,), (theirs,) = (result[name][0]["choices"] for result in (answers, EXPECTED))
    assert choice["finish_reason"] == theirs["finish_reason"]
    message = choice["message"]
    assert set(json.loads(message["content"] or message["tool_calls"][0]["function"]["arguments"])) == {"a"}


@pytest.mark.parametrize("name", ["tokens", "pieces", "facts", "n_tokens"])
def test_tokens_and_facts(answers, name):
    assert answers[name] == EXPECTED[name]


def test_scores_are_the_logits_of_each_token(answers):
    np.testing.assert_allclose(answers["scores"], EXPECTED["scores"], atol=1e-3)


def test_echo_with_log_probabilities_has_those_of_each_token_of_the_prompt(llm):
    logprobs = llm(PROMPT, **GREEDY, echo=True, logprobs=1)["choices"][0]["logprobs"]
    ids = llm.tokenize(PROMPT.encode())
    scored = [entry.logprob for entry in llm._pumice.score(ids)]
    assert logprobs["token_logprobs"][0] is None
    np.testing.assert_allclose(logprobs["token_logprobs"][1 : len(ids) - 1], scored[1:], atol=1e-4)
    assert "".join(logprobs["tokens"]).strip().startswith(PROMPT)


def test_generate_sample_and_state(llm):
    ids = llm.tokenize(PROMPT.encode())
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword argument 'tmp'"):
        llm.generate(ids, tmp=0)
    tokens = llm.generate(ids, temp=0)
    first = [next(tokens) for _ in range(4)]
    assert llm.n_tokens == len(ids) + 3
    assert llm.eval_tokens[-1] == first[2]
    llm.reset()
    llm.eval(ids)
    assert llm.sample(temp=0) == first[0]
    llm.eval(first[:1])
    state = llm.save_state()
    llm.reset()
    llm.load_state(state)
    assert list(llm.eval_tokens) == [*ids, first[0]]
    assert llm.sample(temp=0) == first[1]
    text = llm(PROMPT, **GREEDY)["choices"][0]["text"]
    assert text == llm.detokenize([*first, *(next(tokens) for _ in "ab")]).decode()


def test_functions_grammars_and_seeds(llm):
    assert llm(PROMPT, grammar=LlamaGrammar.from_string('root ::= "yes" | "no"'))["choices"][0]["text"] in ("yes", "no")
    schema = LlamaGrammar.from_json_schema('{"type": "boolean"}')
    assert llm(PROMPT, grammar=schema)["choices"][0]["text"] in ("true", "false")

    def only(token):
        return lambda ids, scores: np.where(np.arange(len(scores)) == token, 0, -np.inf).astype(np.float32)

    forced = llm(PROMPT, max_tokens=2, logits_processor=LogitsProcessorList([only(301), only(301)]))
    assert forced["choices"][0]["text"] == llm.detokenize([301, 301]).decode()
    n = len(llm.tokenize(PROMPT.encode()))
    stops = StoppingCriteriaList([lambda ids, scores: len(ids) >= n + 2])
    assert llm(PROMPT, stopping_criteria=stops)["usage"]["completion_tokens"] == 2
    least = MinTokensLogitsProcessor(3, llm.token_eos())
    assert llm(PROMPT, logit_bias={llm.token_eos(): 100}, logits_processor=least)["usage"]["completion_tokens"] == 3
    one, other = (llm(PROMPT, max_tokens=20, seed=7)["choices"][0]["text"] for _ in "ab")
    assert one == other


def test_embeddings(llm, path):
    result = llm.create_embedding(["a cat", "a dog"])
    assert keys(result) == {
        "object": "str",
        "data": [{"object": "str", "embedding": [["float"]], "index": "int"}],
        "model": "str",
        "usage": {"prompt_tokens": "int", "total_tokens": "int"},
    }
    assert len(result["data"][1]["embedding"][0]) == llm.n_embd()
    pooled = Llama(path, n_ctx=64, embedding=True, pooling_type=1, type_k=0)
    rows = llm.embed("a cat")
    np.testing.assert_allclose(pooled.embed("a cat"), np.mean(rows, axis=0), atol=1e-4)
    pooled.close()


def test_objects_of_openai(llm):
    answer = llm.create_chat_completion_openai_v1(MAKER["MESSAGES"], **GREEDY)
    assert answer.choices[0].message.content
    parts = list(llm.create_chat_completion_openai_v1(MAKER["MESSAGES"], **GREEDY, stream=True))
    assert parts[-1].choices[0].finish_reason == "length"


def test_options_that_change_nothing_are_taken(llm, path):
    llm.set_cache(LlamaRAMCache(1 << 20))
    other = Llama(path, n_ctx=128, draft_model=LlamaPromptLookupDecoding(), n_parts=-1, f16_kv=True, type_k=0)
    assert other(PROMPT, **GREEDY)["choices"][0]["text"] == llm(PROMPT, **GREEDY)["choices"][0]["text"]
    other.close()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda llm: llm(PROMPT * 300), ValueError, r"Requested tokens \(\d+\) exceed context window of 512"),
        (lambda llm: (llm.reset(), llm.eval(range(600))), ValueError, r"tokens \(600\) exceed context window of 512"),
        (lambda llm: llm(PROMPT, temprature=1), TypeError, "unexpected keyword argument 'temprature'; did you mean"),
        (lambda llm: llm(PROMPT, stop=[""]), ValueError, "stop: a text is empty"),
        (lambda llm: llm(PROMPT, temperature="hot"), ValueError, "temperature must be a number"),
        (lambda llm: llm.create_chat_completion("x" * 5000), ValueError, "exceed context window"),
        (lambda llm: llm.create_chat_completion([{"role": 5}]), ValueError, "role: expected"),
        (lambda llm: Llama("missing.gguf"), ValueError, "Model path does not exist: missing.gguf"),
        (lambda llm: Llama(PATH, n_ctxx=5), TypeError, "unexpected keyword argument 'n_ctxx'; did you mean 'n_ctx'"),
        (lambda llm: Llama(PATH, rope_scaling_type=2), ValueError, "rope_scaling_type: Pumice has no such option"),
        (lambda llm: Llama(PATH, type_k=99), ValueError, "type_k, type_v: expected one of"),
        (lambda llm: list(llm(PROMPT, stream=True, logits_processor=lambda i, s: None)), ValueError, "not None"),
    ],
)
def test_what_is_wrong_raises_what_programs_expect(llm, call, kind, message):
    with pytest.raises(kind, match=message):
        call(llm)


def test_install_gives_the_package_to_those_that_import_llama_cpp():
    program = (
        "import pumice.compat.llama_cpp as ours; ours.install(); import llama_cpp; "
        "from llama_cpp.llama import Llama; from llama_cpp import LlamaGrammar, llama_batch_init; "
        "assert llama_cpp is ours and Llama is ours.Llama; ours.install()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_functions_of_llama_cpp_that_packages_call(llm):
    import ctypes

    import pumice.compat.llama_cpp as library

    vocab = library.llama_model_get_vocab(llm.model)
    assert library.llama_vocab_n_tokens(vocab) == llm.n_vocab()
    buffer = ctypes.create_string_buffer(64)
    length = library.llama_token_to_piece(vocab, 301, buffer, 64, 0, True)
    assert buffer.raw[:length] == llm.detokenize([301])
    assert library.llama_token_to_piece(vocab, 301, buffer, 0, 0, True) == -length
    assert library.llama_token_get_attr(vocab, llm.token_bos()) == library.LLAMA_TOKEN_ATTR_CONTROL
    ids, room = llm.tokenize(b"Once upon"), (ctypes.c_int32 * 10)()
    tokenize = library.llama_cpp._lib.llama_tokenize
    assert tokenize(vocab, ctypes.cast(b"Once upon", ctypes.c_void_p), 9, room, 10, True, False) == len(ids)
    assert list(room)[: len(ids)] == ids
    llm.reset()
    batch = library.llama_batch_init(8, 0, 1)
    batch.n_tokens, batch.token[:2] = 2, [1, 300]
    assert library.llama_decode(llm.ctx, batch) == 0
    logits = np.ctypeslib.as_array(library.llama_get_logits(llm.ctx), shape=(2, llm.n_vocab()))
    np.testing.assert_allclose(logits, llm._pumice.logits([1, 300]), atol=0.05)
    assert library.llama_memory_seq_rm(library.llama_get_memory(llm.ctx), -1, 1, -1)
    assert llm.n_tokens == 1


def test_a_pattern_names_a_file_of_the_hub_or_of_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = pumice.demo_model_path().read_bytes()
    with hub_server.serve() as hub:
        hub_server.use(hub, tmp_path, monkeypatch)
        hub.repositories["owner/tiny"] = hub_server.Repository({"tiny-Q8_0.gguf": demo, "tiny-F16.gguf": demo})
        with pytest.raises(ValueError, match="Multiple files"):
            Llama.from_pretrained("owner/tiny", "*.gguf")
        assert Llama.from_pretrained("owner/tiny", "*Q8_0.gguf", n_ctx=64, verbose=False).n_ctx() == 64
        with pytest.raises(ValueError, match="owner/none: no such repository"):
            Llama.from_pretrained("owner/none", "*.gguf")
    Llama.from_pretrained("owner/tiny", "*.gguf", n_ctx=64, verbose=False)  # the one that is on this machine
    for pattern in ("*.gguf", "a.gguf"):
        with pytest.raises(ValueError, match=r"owner/other\S*: no connection"):
            Llama.from_pretrained("owner/other", pattern)
