"""Adapters that are added, scaled and removed while a model is loaded."""

import dataclasses
import threading

import pytest

import pumice
from adapters import ATTENTION, CASES, DENSE, write_adapter, write_case
from control_vectors import directions, write_control_vector
from nightly import variants
from pumice.errors import GGUFError, ModelError, RequestError
from tiny_models import IDS
from tiny_zoo import ZOO

GREEDY = {"temperature": 0.0, "max_tokens": 6}
MODEL = ZOO["llama-bias"]


@pytest.fixture
def path(tmp_path):
    MODEL.write(tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


@pytest.fixture
def vector(tmp_path):
    return write_control_vector(tmp_path / "vector.gguf", directions(MODEL))


def load(path, adapters=None, backend="numpy"):
    named = {name: str(file) for name, file in (adapters or {}).items()}
    return pumice.load(path, backend=backend, kv_type="f32", n_ctx=256, n_parallel=4, config={"adapters": named})


def texts(model, *asked):
    return [model.generate(IDS, adapters=adapters, seed=1, max_tokens=12).tokens for adapters in asked]


@pytest.mark.parametrize("backend", variants(["cpu", "vulkan"], ["cpu"]))
def test_texts_are_those_of_a_model_loaded_with_the_adapters(tmp_path, path, vector, backend, monkeypatch):
    monkeypatch.setenv("PUMICE_VULKAN_SOFTWARE", "1")
    lora = write_case(tmp_path, "two")[0][0]
    asked = [None, {}, {"lora": 1.0}, {"lora": -0.5, "vector": 2.0}]
    with load(path, {"lora": lora, "vector": vector}, backend) as model:
        expected = texts(model, *asked)
        embedded = model.embed([IDS], adapters={"lora": 1.0})
    assert len({tuple(tokens) for tokens in expected}) > 2
    with load(path, backend=backend) as model:
        plain = texts(model, None)
        assert model.adapters.add(lora, name="lora") == "lora"
        assert model.adapters.add(vector) == "vector"
        assert dict(model.adapters) == {"lora": 1.0, "vector": 1.0}
        assert texts(model, *asked) == expected
        assert model.embed([IDS], adapters={"lora": 1.0}) == pytest.approx(embedded, abs=1e-3)
        assert model.facts.loras == ["lora"]
        model.adapters["lora"] = 0.0
        del model.adapters["vector"]
        assert texts(model, None) == plain
        del model.adapters["lora"]
        assert not model.adapters
        assert texts(model, None) == plain


@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_weight_can_be_changed(tmp_path, case):
    model_file = tmp_path / "model.gguf"
    ZOO[CASES[case][0]].write(model_file)
    files = {path.stem: path for path, _ in write_case(tmp_path, case)}
    with load(model_file, files) as model:
        expected = model.logits(IDS)
    with load(model_file) as model:
        for file in files.values():
            model.adapters.add(file)
        assert model.logits(IDS) == pytest.approx(expected, abs=1e-5)


def test_a_running_request_keeps_its_adapters(tmp_path, path):
    first, second = (write_adapter(tmp_path / f"{i}.gguf", MODEL, ATTENTION + DENSE, seed=i) for i in range(2))
    long = {"temperature": 0.0, "max_tokens": 40}
    with load(path, {"a": first, "b": second}) as model:
        expected = {name: model.generate(IDS, adapters={name: 1.0}, **long).tokens for name in "ab"}
    with load(path) as model:
        model.adapters.add(first, name="a")
        with model.stream(IDS, adapters={"a": 1.0}, **long) as stream:
            next(stream)
            del model.adapters["a"]
            model.adapters.add(second, name="a")
            other = model.generate(IDS, adapters={"a": 1.0}, **long)
            assert stream.completion().tokens == expected["a"]
        assert other.tokens == expected["b"]
        assert other.timings.prompt_cached == 0  # the cache of the other adapter of this name is not its own
        model.adapters.add(first, name="again")
        assert model.generate([*IDS] * 3, adapters={"again": 1.0}, **GREEDY).timings.prompt_cached == 0
        assert model.generate([*IDS] * 3, adapters={"again": 1.0}, **GREEDY).timings.prompt_cached > 0
        assert model.generate([*IDS] * 3, adapters={}, **GREEDY).timings.prompt_cached == 0


def test_requests_go_on_while_adapters_come_and_go(tmp_path, path, vector):
    lora = write_case(tmp_path, "attention")[0][0]
    with load(path, {"lora": lora}) as model:
        expected = texts(model, {}, {"lora": 1.0})
    failures, over = [], threading.Event()

    def ask(number):
        while not over.is_set():
            if texts(model, [{}, {"lora": 1.0}][number % 2]) != [expected[number % 2]]:
                failures.append(number)

    with load(path) as model:
        model.adapters.add(lora, name="lora")
        threads = [threading.Thread(target=ask, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            model.adapters.add(vector)
            del model.adapters["vector"]
        over.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_what_cannot_be_added_changes_nothing(tmp_path, path):
    lora = write_case(tmp_path, "attention")[0][0]
    shapes = {**MODEL.shapes, "blk.9.attn_q.weight": (64, 64)}
    strange = dataclasses.replace(MODEL, shapes=shapes)
    other = write_adapter(tmp_path / "other.gguf", strange, ["blk.9.attn_q.weight"])
    with load(path) as model:
        model.adapters.add(lora, name="a", scale=0.5)
        expected = texts(model, None)
        for call, error, message in (
            (lambda: model.adapters.add(lora, name="a"), RequestError, "'a' exists; remove it first"),
            (lambda: model.adapters.add(path), ModelError, "neither a LoRA adapter nor a control vector"),
            (lambda: model.adapters.add(other), ModelError, "changes 'blk.9.attn_q.weight', which this model does"),
            (lambda: model.adapters.add(tmp_path / "missing.gguf"), GGUFError, "missing.gguf"),
            (lambda: model.adapters.add(lora, name="b", scale=float("nan")), RequestError, "finite|numbers"),
            (lambda: model.adapters.add(lora, name="b" * 5000), RequestError, "name must be a text of 1 to 1000 char"),
            (lambda: model.adapters.add(5), RequestError, "path must be a path of a file or folder, not 5"),
            (lambda: model.adapters.add(lora, name="b", scale="big"), RequestError, "scale of 'b' .* not 'big'"),
            (lambda: model.adapters.update({"a": "big"}), RequestError, "scale of 'a' .* not 'big'"),
            (lambda: model.adapters.add(lora, name="b", layers=[1, 2]), ModelError, "applies only to control vectors"),
            (lambda: model.adapters.__setitem__("b", 1.0), RequestError, "no adapter 'b'; it has: a"),
            (lambda: model.adapters.__delitem__("b"), RequestError, "no adapter 'b'; it has: a"),
        ):
            with pytest.raises(error, match=message):
                call()
        assert dict(model.adapters) == {"a": 0.5}
        assert texts(model, None) == expected
    with pytest.raises(pumice.ModelClosedError):
        model.adapters.add(lora)


def test_different_adapters_are_limited(tmp_path, path, monkeypatch):
    monkeypatch.setattr("pumice.local_engine.MAX_ADAPTERS", 2)
    files = [write_adapter(tmp_path / f"{i}.gguf", MODEL, ATTENTION[:1], seed=i) for i in range(3)]
    with load(path) as model:
        for file in (files[0], files[1], files[0]):
            del model.adapters[model.adapters.add(file)]
        with pytest.raises(RequestError, match="2 different ones have been added"):
            model.adapters.add(files[2])


def test_an_engine_in_a_process_of_its_own(tmp_path, path, vector):
    with load(path, {"vector": vector}) as model:
        expected = texts(model, None, {})
    sandbox = {"sandbox_read": [str(tmp_path)]}
    with pumice.load_process(path, backend="numpy", kv_type="f32", n_ctx=256, config=sandbox) as model:
        assert texts(model, None) == expected[1:]
        model.adapters.add(vector)
        assert texts(model, None, {}) == expected
        with pytest.raises(ModelError, match="neither a LoRA adapter nor a control vector"):
            model.adapters.add(path)
        del model.adapters["vector"]
        with pytest.raises(RequestError, match="no adapter 'vector'; it has: none"):
            model.score(IDS, adapters={"vector": 1.0})
        assert texts(model, None) == expected[1:]
