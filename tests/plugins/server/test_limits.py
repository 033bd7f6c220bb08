"""Bounds of what a request may choose: every field has one, in one place, and the documentation tells it."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

import pumice_server
from pumice_server import limits, openai_chat, openai_responses, options
from pumice_server.body import Body
from pumice_server.limits import FIELDS, Items, Number, Object, Text, Whole

ROOT = Path(__file__).parents[3]
READERS = ("get", "first", "integer", "number")
NUMBERS = [
    -1,
    0,
    2**31,
    2**53,
    2**63,
    2**64 - 1,
    1e308,
    -1e308,
    0.5,
    True,
    "5",
    "NaN",
    "Infinity",
    [],
    {},
    [1],
    -(2**63),
]
NUMERIC = {name: kinds for name, kinds in FIELDS.items() if any(isinstance(kind, Number) for kind in kinds)}


@cache
def read_fields() -> Sequence[tuple[str, str]]:
    """The fields that the sources read of a ``Body``, each with where that is."""
    return list(_read_fields())


def _read_fields() -> Iterator[tuple[str, str]]:
    for path in Path(pumice_server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            for name in _read(node):
                yield name, where
    tables = (options.SAMPLING, options.FORMS, options.REFUSED, openai_chat._CHAT_FIELDS, openai_responses._ECHOED)
    for name in (name for table in tables for name in table):
        yield name, "a table"


def _read(node: ast.AST) -> list[str]:
    """Names in ``body.get("a")``, ``body.first("a", "b")``, ``body.fields["a"]`` and ``"a" in body.fields``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
        receiver = ast.unparse(node.func.value)
        names = node.args if node.func.attr == "first" else node.args[:1]
        return _texts(names) if receiver in ("body", "fields", "self") or receiver.endswith(".fields") else []
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("body.fields"):
        return _texts([node.slice])
    if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]).endswith("body.fields"):
        return _texts([node.left])
    return []


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def without_bounds() -> list[str]:
    known = {*limits.FIELDS, *limits.SCALE}
    return [f"{name} ({where})" for name, where in read_fields() if name not in known]


def test_every_field_that_is_read_has_a_bound(monkeypatch):
    assert without_bounds() == []
    assert len({name for name, _ in read_fields()}) > 100
    for name in ("n", "t_max_predict_ms", "top_k", "input_extra", "instructions", "with_pieces"):
        monkeypatch.setattr(limits, "FIELDS", {other: kinds for other, kinds in FIELDS.items() if other != name})
        assert {text.split()[0] for text in without_bounds()} == {name}


def test_no_bound_is_of_a_field_that_nobody_reads():
    sources = "".join(path.read_text() for path in Path(pumice_server.__file__).parent.rglob("*.py"))
    sources = sources.replace(inspect.getsource(limits), "")
    unread = [name for name in FIELDS if f'"{name}"' not in sources and "guided_" not in name]
    assert unread == ["n_discard", "n_keep", "n_indent", "n_cache_reuse"]  # they mean nothing here


def test_a_field_without_a_bound_is_not_seen():
    body = Body({"new_field": 10**9, "n": 2})
    assert body.fields == {"n": 2}
    for read in (body.first, lambda name: body.get(name, int, 1), lambda name: body.integer(name, 1)):
        with pytest.raises(LookupError, match="'new_field' has no bound: give it one"):
            read("new_field")


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_within_its_bounds(name):
    """What is beyond gets 400 with the field, the value and the bound, in a few words."""
    for kind in FIELDS[name]:
        for value, bound in _beyond(kind):
            with pytest.raises(HTTPException) as error:
                Body({name: value})
            assert error.value.status_code == 400
            assert name in error.value.detail
            assert bound in error.value.detail
            assert len(error.value.detail) < 300
    for value in NUMBERS:
        if limits.check(name, value, FIELDS[name]) is None:
            assert Body({name: value}).fields[name] == value
        else:
            with pytest.raises(HTTPException, match=name):
                Body({name: value})


def _beyond(kind: limits.Kind) -> list[tuple[object, str]]:
    """Values that a kind refuses, and the bound that is told."""
    match kind:
        case Number(least, most):
            step = 1 if isinstance(kind, Whole) else abs(most)
            told = [f"{bound:g}" if isinstance(bound, float) else f"{bound}" for bound in (least, most)]
            return [(least - step, told[0]), (most + step, told[1])]
        case Text(most) if most < limits.MAX_BODY:
            return [("x" * (most + 1), f"{most}")]
        case Items(most):
            return [([0] * (most + 1), f"{most}")] if most <= 1 << 16 else []
        case Object(most):
            return [(dict.fromkeys(map(str, range(most + 1))), f"{most}")]
    return []


def test_bounds_inside_of_fields():
    for body, told in (
        ({"stop": ["x" * 257]}, "stop: item 0: at most 256 characters, not 257: 'xxx"),
        ({"stop_token_ids": [1, 2**40]}, "item 1': Value must be between 0 <= value <= 2147483647"),
        ({"thinking": {"budget_tokens": 2**63}}, "'budget_tokens': Value must be between -1"),
        ({"reasoning": {"effort": ["high"]}}, "effort must be text, not ['high']"),
        ({"structured_outputs": {"choice": ["a"] * 1025}}, "choice: at most 1024 items"),
        ({"dry_sequence_breakers": ["a"] * 65}, "at most 64 items"),
        ({"dry_sequence_breakers": ["a" * 41]}, "at most 40 characters"),
    ):
        with pytest.raises(HTTPException) as error:
            Body(body)
        assert told in error.value.detail


def test_the_documentation_has_every_bound():
    page = (ROOT / "docs" / "request_limits.md").read_text()
    assert limits.table() in page, f"put this into docs/request_limits.md:\n{limits.table()}"


# --- over HTTP

GOOD = {"messages": [{"role": "user", "content": "Once"}], "prompt": "Once", "input": "Once", "max_tokens": 1}
GOOD |= {"content": "Once", "tokens": [1], "max_output_tokens": 1, "n_predict": 1, "query": "a", "documents": ["b"]}
PATHS = ("/v1/chat/completions", "/v1/completions", "/completion", "/v1/responses", "/v1/messages", "/v1/embeddings")


def accepted(name: str) -> list[object]:
    """Numbers that a field takes, its bounds among them."""
    (kind,) = [kind for kind in FIELDS[name] if isinstance(kind, Number)]
    values = [kind.least, kind.most, *(value for value in NUMBERS if limits.check(name, value, FIELDS[name]) is None)]
    return list({repr(value): value for value in values}.values())


@pytest.mark.parametrize("name", NUMERIC)
def test_no_number_is_the_servers_fault(server, name):
    """Whatever a field takes, an answer comes, and its engine goes on."""
    ends = {str(server.model.tokenizer.eos): 1000}  # at once, however many tokens there may be
    alone = GOOD | {"logit_bias": ends}
    for value in accepted(name):
        for path in PATHS:
            response = server.client.post(path, json=alone | {name: value})
            assert response.status_code in (200, 400, 429), (path, value, response.text)
        wrapped = {"messages": GOOD["messages"], "options": alone | {"num_predict": 1, name: value}, "stream": False}
        response = server.client.post("/api/chat", json=wrapped)
        assert response.status_code in (200, 400), (value, response.text)


@pytest.mark.parametrize("value", [-1, 0, 2**31, 2**53, 2**63, 2**64, 1e308, -1e308, True, "5", None, [], {}, [[]]])
def test_no_value_in_a_list_is_the_servers_fault(server, value):
    """Where lists hold numbers: tokens, biases, adapters, texts."""
    for path, body in (
        ("/v1/completions", {"prompt": [value]}),
        ("/v1/completions", {"prompt": [[value]], "echo": True, "prompt_logprobs": 1}),
        ("/v1/completions", {"prompt": [value], "echo": True, "logprobs": 1}),
        ("/completion", {"prompt": ["a", value]}),
        ("/detokenize", {"tokens": [value]}),
        ("/v1/embeddings", {"input": [value]}),
        ("/embedding", {"content": [[value]]}),
        ("/v1/completions", {"logit_bias": {"1": value}}),
        ("/v1/completions", {"logit_bias": [[value, 1]]}),
        ("/v1/completions", {"logit_bias": {str(value): 1}}),
        ("/v1/completions", {"lora": [{"id": value, "scale": value}]}),
        ("/v1/completions", {"stop_token_ids": [value]}),
        ("/api/chat", {"keep_alive": value, "stream": False, "options": {"num_predict": 1}}),
        ("/api/chat", {"keep_alive": str(value) + "m", "stream": False, "options": {"num_predict": 1}}),
    ):
        response = server.client.post(path, json=GOOD | body)
        assert response.status_code in (200, 400), (path, body, response.text)
    response = server.client.post("/lora-adapters", json=[{"id": value, "scale": value}])
    assert response.status_code in (200, 400), response.text
