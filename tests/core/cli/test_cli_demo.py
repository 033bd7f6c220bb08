"""Commands without MODEL: the demo model, which is in the package."""

import json
import re
from pathlib import Path

import gguf
import pytest
from tools.demo_model.checker import check

import pumice
from gguf_files import write_gguf
from pumice.gguf import GGUFFile

NUMPY = ["--backend", "numpy"]
EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "demo_model.json").read_text())
GREEDY = EXPECTED["greedy"]  # llama.cpp's, from the same weights in float32


@pytest.mark.parametrize("expected", GREEDY, ids=lambda item: item["prompt"] or "no prompt")
def test_the_story_is_that_of_llama_cpp(run, expected):
    options = ["-p", expected["prompt"], "-n", "200", "--temp", "0", "--kv-type", "f32", *NUMPY]
    assert run("run", *options).stdout == expected["text"]


@pytest.mark.parametrize("input", [None, ""], ids=["terminal", "nothing piped in"])
def test_without_a_prompt_it_tells_a_whole_story(run, input):
    story = run("run", "--temp", "0", "--kv-type", "f32", *NUMPY, input=input).stdout
    assert story.startswith(GREEDY[0]["text"])
    assert check(story).ok, "128 tokens, the default for other models, would end before the story does"


def test_at_a_terminal_another_model_needs_a_prompt(run, model):
    done = run("run", model, *NUMPY, input=None)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no prompt: give one with -p TEXT or -f FILE, or pipe it in")
    assert run("tokenize", input=None).returncode == 2


def test_options_still_apply(run):
    done = run("run", "-n", "5", "--temp", "0", *NUMPY, input="Once upon a time")
    assert "generation 5 tokens" in done.stderr
    assert done.stdout
    assert GREEDY[1]["text"].startswith(done.stdout)


def test_info_shows_what_the_file_says_of_itself(run):
    facts = json.loads(run("info", "--json").stdout)
    fields = gguf.GGUFReader(pumice.demo_model_path()).fields
    for key in ("name", "author", "license", "description"):
        assert facts[key] == fields[f"general.{key}"].contents()
        assert re.search(rf"^{key} +{re.escape(facts[key])}$", run("info").stdout, re.MULTILINE)
    assert (facts["name"], facts["license"]) == ("Pumice demo", "Apache-2.0")
    assert (facts["architecture"], facts["n_layers"], facts["n_ctx_train"]) == ("llama", 6, 512)
    assert facts["bytes"] <= 6_000_000
    assert next(iter(facts["quantization"])) == "Q8_0"


def test_info_of_its_vocabulary_without_weights(run, tmp_path):
    with GGUFFile.open(pumice.demo_model_path()) as file:
        path = str(write_gguf(tmp_path / "vocabulary.gguf", file.metadata, {}))
    facts = json.loads(run("info", path, "--json").stdout)
    assert (facts["n_tensors"], facts["parameters"], facts["n_vocab"]) == (0, 0, 2048)
    assert "gpt2/gpt-2, 2048 tokens" in run("info", path).stdout


def test_bench_and_tokenize_have_it_too(run):
    ids = json.loads(run("tokenize", "-p", "Once upon a time", "--json").stdout)
    assert ids == pumice.load_tokenizer(pumice.demo_model_path()).tokenize("Once upon a time")
    (result,) = json.loads(run("bench", "-p", "0", "-n", "4", "-r", "1", "--json", *NUMPY).stdout)
    assert result["model"] == str(pumice.demo_model_path())


def test_load_without_a_path_is_the_demo_model():
    with pumice.load(backend="numpy", kv_type="f32") as model:
        assert model.metadata["general.basename"] == "pumice-demo"
        completion = model.generate("Once upon a time", max_tokens=None, temperature=0)
    assert completion.text.startswith(GREEDY[1]["text"])
    assert completion.finish_reason == "stop"
    assert check("Once upon a time" + completion.text).ok


def test_it_chats_by_the_template_of_its_file(tmp_path):
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(pumice.demo_model_path().read_bytes())
    chat = [{"role": "user", "content": "Once upon a time"}]
    for path in (None, copy):
        with pumice.load(path, backend="numpy") as model:
            answer = model.chat(chat, max_tokens=6, temperature=0).message.content
            assert answer == model.generate("Once upon a time", max_tokens=6, temperature=0).text
