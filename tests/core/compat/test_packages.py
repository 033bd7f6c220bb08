"""Packages that import ``llama_cpp`` run on ``pumice.compat.llama_cpp``; each in a process of its own.

They are no dependencies of the development environment: without one its test is skipped. guidance needs an older
``llguidance`` than Pumice, and runs with the newer one.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import pumice
from demo_models import CHAT_TEMPLATE, write_demo_model
from pumice.gguf import GGMLType

PROGRAMS = {
    "langchain_community": """
from langchain_community.chat_models import ChatLlamaCpp
from langchain_community.llms import LlamaCpp
text = LlamaCpp(model_path=PATH, n_ctx=256, temperature=0, max_tokens=6, verbose=False)
assert text.invoke("Once upon a time") == EXPECTED
assert "".join(text.stream("Once upon a time")) == EXPECTED
chat = ChatLlamaCpp(model_path=PATH, n_ctx=1024, temperature=0, max_tokens=6, verbose=False)
answer = chat.invoke("Once upon a time")
assert answer.content and answer.response_metadata["finish_reason"] == "length"
assert "".join(part.content for part in chat.stream("Once upon a time")) == answer.content
""",
    "llama_index.llms.llama_cpp": """
from llama_index.llms.llama_cpp import LlamaCPP
llm = LlamaCPP(model_path=PATH, temperature=0.0, max_new_tokens=6, context_window=256, verbose=False)
assert llm.complete("Once upon a time").text == EXPECTED
assert "".join(part.delta for part in llm.stream_complete("Once upon a time")) == EXPECTED
""",
    "outlines": """
from typing import Literal
import llama_cpp, outlines
from outlines.types import CFG
model = outlines.from_llamacpp(llama_cpp.Llama(PATH, n_ctx=256, verbose=False), chat_mode=False)
assert model("Once upon a time", max_tokens=6, temperature=0) == EXPECTED
assert model("Yes or no?", Literal["yes", "no"], max_tokens=5) in ("yes", "no")
assert model("Yes or no?", CFG('start: "yes" | "no"'), max_tokens=5) in ("yes", "no")
""",
    "guidance": """
from guidance import gen, models, select
lm = models.LlamaCpp(PATH, n_ctx=256, echo=False) + "Once upon a time" + gen("text", max_tokens=6, temperature=0)
assert lm["text"] == EXPECTED
assert (lm + select(["yes", "no"], name="answer"))["answer"] in ("yes", "no")
""",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return write_demo_model(folder / "demo.gguf", GGMLType.F32, template=CHAT_TEMPLATE)


@pytest.mark.parametrize("package", PROGRAMS)
def test_a_package_runs_unchanged(package, path):
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    with pumice.load(path, n_ctx=256) as model:
        expected = model.generate("Once upon a time", max_tokens=6, temperature=0).text
    begin = f"import pumice.compat.llama_cpp as ours\nours.install()\nPATH, EXPECTED = {str(path)!r}, {expected!r}\n"
    done = subprocess.run([sys.executable, "-c", begin + PROGRAMS[package]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
