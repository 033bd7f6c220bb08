"""Capabilities of chat templates beside llama-server's."""

import json
from pathlib import Path

import pytest

import pumice
from family_templates import FAMILIES
from gguf_files import tiny_llama
from pumice.chat import BUILTIN
from pumice.chat.capabilities import capabilities
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits

PEERS = json.loads((Path(__file__).parents[2] / "fixtures" / "template_capabilities.json").read_text())
TEMPLATES = {**BUILTIN, **FAMILIES}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_can_what_llama_server_says(name):
    able = capabilities(with_traits(ChatTemplate(TEMPLATES[name], "<s>", "</s>")))
    assert sorted(name for name, can in able.items() if can) == PEERS[name]


def test_reasoning_that_is_kept_and_effort():
    source = (
        "{{ reasoning_effort }}{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
        "{% if not clear_thinking %}{{ m.reasoning_content }}{% endif %}{% endfor %}"
    )
    able = capabilities(with_traits(ChatTemplate(source)))
    assert able["supports_preserve_reasoning"]
    assert able["supports_reasoning_effort"]
    assert able["supports_typed_content"]
    assert not able["supports_tools"]


def test_a_model_tells_them(tmp_path):
    with pumice.load(config={"chat_template": "chatml"}) as model:
        assert model.template.capabilities()["supports_system_role"]
    with pumice.load(tiny_llama(tmp_path / "without.gguf"), backend="numpy") as model:
        assert model.template.capabilities() == {}
