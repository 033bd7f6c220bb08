"""Built-in chat templates beside llama.cpp's (tests/make_fixtures/README.md)."""

import json
from pathlib import Path

import pytest

from pumice.chat.builtin import BUILTIN
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "chat_templates.json").read_text())


@pytest.mark.parametrize("name", FIXTURE["rendered"])
def test_a_template_writes_what_llama_cpp_writes(name):
    template = with_traits(ChatTemplate(BUILTIN[name], eos="<|endoftext|>" if name == "zephyr" else "</s>"))
    for chat, expected in zip(FIXTURE["chats"], FIXTURE["rendered"][name], strict=True):
        assert template.render([{"role": role, "content": text} for role, text in chat]) == expected
