"""Results of llama-cpp-python's ``Llama`` with the demo model, for the class of the same name in ``pumice.compat``.

Run it with an interpreter that has llama-cpp-python 0.3.36. The model is that of the test::

    PYTHONPATH=tests .venv/bin/python -c "from demo_models import *; \\
        write_demo_model(Path('demo.gguf'), GGMLType.F32, template=CHAT_TEMPLATE)"
    python tests/make_fixtures/llama_cpp_results.py demo.gguf > tests/fixtures/llama_cpp_results.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look at it", "parameters": SCHEMA}}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("create_completion", {"prompt": PROMPT, **GREEDY}),
    "stop": ("create_completion", {"prompt": PROMPT, **GREEDY, "stop": [" a"]}),
    "echo": ("create_completion", {"prompt": PROMPT, **GREEDY, "echo": True}),
    "bias": ("create_completion", {"prompt": PROMPT, **GREEDY, "logit_bias": {"300": 100}}),
    "logprobs": ("create_completion", {"prompt": PROMPT, **GREEDY, "logprobs": 2}),
    "parts": ("create_completion", {"prompt": PROMPT, **GREEDY, "stream": True}),
    "parts with logprobs": ("create_completion", {"prompt": PROMPT, **GREEDY, "stream": True, "logprobs": 1}),
    "chat": ("create_chat_completion", {"messages": MESSAGES, **GREEDY}),
    "chat with logprobs": (
        "create_chat_completion", {"messages": MESSAGES, **GREEDY, "logprobs": True, "top_logprobs": 2},
    ),
    "parts of a chat": ("create_chat_completion", {"messages": MESSAGES, **GREEDY, "stream": True}),
    "object": (
        "create_chat_completion",
        {"messages": MESSAGES, "temperature": 0, "response_format": {"type": "json_object", "schema": SCHEMA}},
    ),
    "call": (
        "create_chat_completion",
        {
            "messages": MESSAGES, "temperature": 0, "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
        },
    ),
}  # fmt: skip


def comparable(part: dict[str, Any]) -> dict[str, Any]:
    """Return a result without what differs in each run."""
    return {**part, "id": part["id"].partition("-")[0], "created": type(part["created"]).__name__, "model": ""}


def results(llm: Any) -> dict[str, Any]:
    """Return what a ``Llama`` answers to each call."""
    answers: dict[str, Any] = {}
    for name, (method, arguments) in CALLS.items():
        answer = getattr(llm, method)(**arguments)
        answers[name] = [comparable(part) for part in ([answer] if isinstance(answer, dict) else answer)]
    answers["tokens"] = [llm.tokenize(text, *flags) for text in (b"Once", b"<s>") for flags in ((), (False, True))]
    answers["pieces"] = [llm.detokenize([300, 301]).decode(), llm.detokenize([1, 300]).decode()]
    answers["facts"] = [llm.n_ctx(), llm.n_vocab(), llm.n_embd(), llm.token_bos(), llm.token_eos(), llm.token_nl()]
    llm.reset()
    llm.eval([1, 300, 301])
    answers["scores"] = llm.scores[:3, :20].tolist()
    answers["n_tokens"] = llm.n_tokens
    return answers


if __name__ == "__main__":
    from llama_cpp import Llama

    model = Llama(sys.argv[1], n_ctx=512, logits_all=True, verbose=False, type_k=0, type_v=0)
    json.dump(results(model), sys.stdout, indent=1, default=float)
