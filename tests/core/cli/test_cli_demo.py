"""Commands without MODEL: the demo model, which is in the package."""

import json
from pathlib import Path

import pytest
from tools.demo_model.checker import check

import pumice

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


def test_it_chats_by_the_template_of_its_file(tmp_path):
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(pumice.demo_model_path().read_bytes())
    chat = [{"role": "user", "content": "Once upon a time"}]
    for path in (None, copy):
        with pumice.load(path, backend="numpy") as model:
            answer = model.chat(chat, max_tokens=6, temperature=0).message.content
            assert answer == model.generate("Once upon a time", max_tokens=6, temperature=0).text
