"""``model.hidden`` and ``on_layer``: rows of layers, read and replaced, on several backends."""

import asyncio

import numpy as np
import pytest

import pumice
from nightly import variants
from pumice.local_engine import local_engine
from tiny_models import IDS
from tiny_zoo import ZOO

PROMPT = "Once upon a time"
GREEDY = {"max_tokens": 8, "temperature": 0}
LAYERS = ["embeddings", *range(6)]


@pytest.fixture(scope="module", params=variants(["numpy", "cpu", "vulkan"], daily=["cpu"]))
def model(request, demo_model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUMICE_VULKAN_SOFTWARE", "1")
        try:
            model = pumice.load(demo_model("F16"), backend=request.param, n_ctx=512, n_batch=32, kv_type="f32")
        except pumice.BackendError as error:
            pytest.skip(str(error))
        with model:
            yield model


def weight(model: pumice.Model, name: str) -> np.ndarray:
    return local_engine(model).file.tensors[name].dequantize()


def test_the_first_rows_are_embeddings_and_the_last_give_the_logits(model):
    ids = model.tokenizer.tokenize(PROMPT)
    rows = model.hidden(ids, layers=LAYERS)
    np.testing.assert_allclose(rows["embeddings"], weight(model, "token_embd.weight")[ids], atol=1e-3)
    x = rows[5] / np.sqrt(np.mean(rows[5] ** 2, axis=-1, keepdims=True) + 1e-5)
    logits = (x * weight(model, "output_norm.weight")) @ weight(model, "token_embd.weight").T
    np.testing.assert_allclose(logits, model.logits(ids), rtol=1e-2, atol=0.05)


def test_embeddings_are_not_the_further_inputs_of_layers(tmp_path):
    with pumice.load(ZOO["gemma4-e2b"].write(tmp_path / "model.gguf"), backend="numpy", n_ctx=64) as model:
        rows = model.hidden(IDS, layers=["embeddings", 0])
        table = weight(model, "token_embd.weight")
    np.testing.assert_allclose(rows["embeddings"], table[IDS] * np.sqrt(table.shape[1]), rtol=1e-5)
    assert rows["embeddings"].shape == rows[0].shape


def test_a_layer_adds_attention_and_feed_forward(model):
    rows = model.hidden(PROMPT, layers=[2, 3, "3.attention", "3.ffn"])
    np.testing.assert_allclose(rows[2] + rows["3.attention"] + rows["3.ffn"], rows[3], atol=1e-3)
    assert np.abs(rows["3.attention"]).max() > 0.1


def test_texts_are_computed_together_and_in_parts(model):
    texts = [PROMPT, "The dog ran. " * 20, "A cat"]  # the second is longer than a step
    several = model.hidden(texts, layers=[1, 5])
    assert [rows[5].shape[0] for rows in several] == [len(model.tokenizer.tokenize(text)) for text in texts]
    for text, rows in zip(texts, several, strict=True):
        alone = model.hidden(text, layers=[5])
        assert np.linalg.norm(rows[5] - alone[5]) < 0.02 * np.linalg.norm(alone[5])


def test_texts_come_in_several_forms(model):
    ids = model.tokenizer.tokenize(PROMPT)
    expected = model.hidden(PROMPT, layers=[1])[1]
    for text in (ids, tuple(ids), np.array(ids)):
        assert np.linalg.norm(model.hidden(text, layers=[1])[1] - expected) < 0.02 * np.linalg.norm(expected)
        (rows,) = model.hidden([text], layers=[1])
        assert rows[1].shape == expected.shape


def test_a_function_sees_the_rows_of_every_token_once(model):
    ids, seen = model.tokenizer.tokenize(PROMPT), []
    plain = model.generate(PROMPT, **GREEDY)
    looked = model.generate(PROMPT, **GREEDY, on_layer={3: lambda rows, at: seen.append((rows.copy(), at.tolist()))})
    assert looked.tokens == plain.tokens
    assert [at for _, positions in seen for at in positions] == list(range(len(ids) + 7))
    read = model.hidden([*ids, *plain.tokens[:-1]], layers=[3])[3]
    rows = np.concatenate([rows for rows, _ in seen])
    assert np.linalg.norm(rows - read) < 0.02 * np.linalg.norm(read)


def test_replaced_rows_go_on(model):
    other = model.hidden("The dog", layers=[5])[5][-1]  # what follows the prompt is what follows "The dog"

    def patch(rows, positions):
        rows[-1] = other
        return rows

    patched = model.generate(PROMPT, max_tokens=1, temperature=0, on_layer={5: patch})
    assert patched.tokens == model.generate("The dog", max_tokens=1, temperature=0).tokens
    assert model.generate(PROMPT, max_tokens=1, temperature=0).tokens != patched.tokens


def test_zeros_added_by_a_part_of_a_layer_leave_the_stream(model):
    kept = {}

    def keep(name):
        return lambda rows, positions: kept.update({name: rows}) or None

    functions = {"3.attention": lambda rows, at: 0 * rows, "3.ffn": lambda rows, at: 0 * rows, 2: keep(2), 3: keep(3)}
    model.generate(PROMPT, max_tokens=1, on_layer=functions)
    np.testing.assert_allclose(kept[3], kept[2], atol=1e-5)


def test_others_in_the_same_step_are_not_touched(model):
    plain = model.generate(PROMPT, **GREEDY)
    each = [{}, {"on_layer": {0: lambda rows, positions: 0 * rows}}, {}]
    first, changed, last = model.generate_many([PROMPT] * 3, each=each, **GREEDY)
    assert first.tokens == last.tokens == plain.tokens
    assert changed.tokens != plain.tokens
    assert model.generate(PROMPT, **GREEDY).tokens == plain.tokens  # nor is what the cache holds


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([6], r"hidden: the model has no layer 6; it has 0 to 5, '5.attention', '5.ffn' and 'embeddings'"),
        (["3.nose"], "hidden: the model has no layer '3.nose'"),
        ([-1], "hidden: the model has no layer -1"),
        ([], r"hidden: layers must be a list of layers, not \[\]"),
        ("3", "hidden: layers must be a list of layers, not '3'"),
    ],
)
def test_wrong_layers_are_refused(model, layers, message):
    with pytest.raises(pumice.RequestError, match=message):
        model.hidden(PROMPT, layers=layers)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({9: lambda rows, at: rows}, "on_layer: the model has no layer 9"),
        ({1: 5}, "on_layer must be a mapping of layers to functions"),
        ({1: lambda rows, at: rows[:, 1:]}, r"on_layer: 1: must return rows of the shape \(\d+, 256\), not"),
        ({1: lambda rows, at: rows * np.nan}, "on_layer: 1: the returned rows contain NaN"),
        ({1: lambda rows, at: "x"}, "on_layer: 1: must return rows or None, not 'x'"),
        ({1: lambda rows: rows}, "on_layer: 1: raised TypeError"),
        ({1: lambda rows, at: 1 / 0}, "on_layer: 1: raised ZeroDivisionError"),
    ],
)
def test_a_wrong_function_fails_its_request_alone(model, functions, message):
    with model.stream(PROMPT, max_tokens=40, temperature=0) as other:
        next(other)
        with pytest.raises(pumice.RequestError, match=message):
            model.generate(PROMPT, on_layer=functions)
        assert len(other.completion().tokens) == 40


def test_an_engine_in_another_process_reads_layers_and_takes_no_functions(model):
    texts, layers = [PROMPT, "The dog"], [1, "3.ffn", "embeddings"]
    with pumice.load_process(n_ctx=128, backend="cpu", kv_type="f32") as elsewhere:
        for layer in ("a" * 5000, 2**70):
            with pytest.raises(pumice.RequestError, match="hidden: the model has no layer"):
                elsewhere.hidden(PROMPT, layers=[layer])
        for rows, expected in zip(
            elsewhere.hidden(texts, layers=layers), model.hidden(texts, layers=layers), strict=True
        ):
            for layer in layers:
                assert np.linalg.norm(rows[layer] - expected[layer]) < 0.02 * np.linalg.norm(expected[layer])
        alone = asyncio.run(elsewhere.ahidden(PROMPT, layers=[1]))
        assert alone[1].shape == (len(model.tokenizer.tokenize(PROMPT)), model.facts.n_embd)
        with pytest.raises(pumice.RequestError, match="hidden: the model has no layer 6"):
            elsewhere.hidden(PROMPT, layers=[6])
        with pytest.raises(pumice.RequestError, match="on_layer: functions need an engine in this process"):
            elsewhere.generate(PROMPT, on_layer={1: lambda rows, positions: rows})


def test_many_sets_of_layers_end_in_one_graph_of_all():
    with pumice.load(n_ctx=128, backend="numpy") as model:
        expected = model.hidden(PROMPT, layers=LAYERS)
        for first in LAYERS:
            for second in LAYERS[3:]:
                rows = model.hidden(PROMPT, layers=[first, second])
                np.testing.assert_allclose(rows[first], expected[first], atol=1e-3)
        assert len(local_engine(model).runner.placed._derived) <= 9
