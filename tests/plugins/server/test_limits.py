"""Bounds of what a request may choose: every field of every body has one, and what is beyond gets 400."""

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from starlette.exceptions import HTTPException

from pumice_server.application import operations
from pumice_server.field_types import REASON
from pumice_server.http import schemas
from pumice_server.http.bodies import Generation, ModelBody, Scale, Scales
from pumice_server.http.body import Body, converted
from pumice_server.protocols.anthropic.bodies import AnthropicMessagesBody
from pumice_server.protocols.ollama.bodies import OllamaChatBody, OllamaOptions
from pumice_server.protocols.openai.bodies import ChatBody
from pumice_server.settings import Settings

NUMBERS = [-1, 0, 0.5, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 1e308, -1e308]
NUMBERS += [True, "5", "NaN", "Infinity", [], {}, [1]]
GOOD = {"messages": [{"role": "user", "content": "Once"}], "prompt": "Once", "input": "Once", "max_tokens": 1}
GOOD |= {"content": "Once", "tokens": [1], "max_output_tokens": 1, "n_predict": 1, "query": "a", "documents": ["b"]}
GOOD |= {"input_prefix": "a", "input_suffix": "b", "instances": [], "@requestFormat": "chatCompletions"}
GOOD |= {"tool": "echo", "conversation_ids": ["a"], "pdf": "JQ=="}
GOOD |= {"id": "a", "action": "reasoning_end", "input_file_id": "a", "endpoint": "/v1/embeddings"}
GOOD |= {"layers": [0]}
ASKED = [each.body for each in operations(Settings(predict_route="/predict"))]
BODIES = sorted(
    {base for kind in ASKED if inspect.isclass(kind) and issubclass(kind, Body) for base in kind.__mro__[:-3]},
    key=lambda kind: kind.__name__,
)
UNBOUNDED = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
LONG_TEXTS = {"input", "content", "prompt", "suffix", "instructions", "system", "query", "texts", "documents"}
LONG_TEXTS |= {"input_prefix", "input_suffix", "text"}
"""Texts that only the size of the body and the context of the model bound."""


def fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return schemas.schema_of(kind)["properties"]


def without_bounds(name: str, schema: Any) -> Iterator[str]:
    """Return the parts of a field without a bound; objects with known keys have one."""
    for kind in schemas.alternatives(schema):
        what = kind.get("type")
        if REASON in kind or "enum" in kind or what == "boolean" or "type" not in kind:
            continue
        if what in ("integer", "number"):
            if "minimum" not in kind or "maximum" not in kind:
                yield f"{name}: {what}"
        elif what == "object" and "properties" in kind:
            for inner, inside in kind["properties"].items():
                yield from without_bounds(f"{name}.{inner}", inside)
        elif UNBOUNDED[what] not in kind and not (what == "string" and name.rpartition(".")[2] in LONG_TEXTS):
            yield f"{name}: {what}"


def all_fields() -> list[tuple[type[Body], str]]:
    """Every field, with the first body that has it of this schema."""
    seen = {}
    for kind in BODIES:
        for name, schema in fields(kind).items():
            seen.setdefault((name, repr(schema)), (kind, name))
    return list(seen.values())


def body_with(kind: type[Body], name: str, value: Any) -> Body:
    required = schemas.schema_of(kind).get("required", ())
    return kind.of({field: GOOD[field] for field in required} | {name: value})


def supported_body_with(kind: type[Body], name: str, value: Any) -> None:
    body = body_with(kind, name, value)
    if isinstance(body, Generation):
        body.refuse_unsupported()


@pytest.mark.parametrize(("kind", "name"), all_fields(), ids=lambda each: getattr(each, "__name__", each))
def test_a_field_is_within_its_bounds(kind, name):
    """Values beyond the bounds get 400 with the field, the value and the bound."""
    schema = fields(kind)[name]
    if REASON in schema:
        for value in ([1], [None], [[1, None]]):
            assert schemas.explain(value, schema) is None  # the reason is told, whatever the value
            with pytest.raises(HTTPException, match=f"{name} is not supported: "):
                supported_body_with(kind, name, value)
        return
    for alternative in schemas.alternatives(schema):
        for value, bound in beyond(alternative):
            with pytest.raises(HTTPException) as error:
                body_with(kind, name, value)
            assert error.value.status_code == 400
            assert name in error.value.detail
            assert bound in error.value.detail
            assert len(error.value.detail) < 300
    for value in NUMBERS:
        if schemas.explain(value, schema, name) is None:
            body = msgspec.to_builtins(body_with(kind, name, value))
            assert body.get(name, value) == value or value == {}
        else:
            with pytest.raises(HTTPException, match=name):
                body_with(kind, name, value)


def beyond(schema: Any) -> list[tuple[object, str]]:
    """Values that a schema refuses, and the bound that is told."""
    match schema:
        case {"minimum": least, "maximum": most} if most < 2**60:
            step = 1 if schema["type"] == "integer" else abs(most)
            return [(least - step, schemas.told(least)), (most + step, schemas.told(most))]
        case {"maxLength": most}:
            return [("x" * (most + 1), f"{most}")]
        case {"type": "array", "maxItems": most}:
            return [([0] * (most + 1), f"{most}")] if most <= 1 << 16 else []
        case {"type": "object", "maxProperties": most}:
            return [(dict.fromkeys(map(str, range(most + 1))), f"{most}")]
    return []


def test_bounds_inside_of_fields():
    for kind, fields_of_body, message in (
        (ChatBody, {"stop": ["x" * 257]}, "stop[0]: at most 256 characters, not 257: 'xxx"),
        (ChatBody, {"stop_token_ids": [1, 2**40]}, "stop_token_ids[1] must be between 0 and 2147483647, not"),
        (ChatBody, {"structured_outputs": {"choice": ["a"] * 1025}}, "structured_outputs.choice: at most 1024 items"),
        (ChatBody, {"logit_bias": {"a": 1e31}}, "logit_bias['a'] must be between -1e+30"),
        (ChatBody, {"logit_bias": [[5, 1], [6]]}, "logit_bias[1] must be a list of 2 items, not [6]"),
        (ChatBody, {"dry_sequence_breakers": ["a"] * 65}, "at most 64 items"),
        (ChatBody, {"dry_sequence_breakers": ["a" * 41]}, "at most 40 characters"),
        (AnthropicMessagesBody, {"thinking": {"budget_tokens": 2**63}}, "thinking.budget_tokens must be between -1"),
        (AnthropicMessagesBody, {"output_config": {"effort": ["x"]}}, "output_config.effort must be text, not ['x']"),
    ):
        with pytest.raises(HTTPException) as error:
            kind.of(GOOD | fields_of_body)
        assert message in error.value.detail


def test_null_counts_as_absent_and_whole_floats_as_integers():
    body = OllamaChatBody.of({"stream": None, "options": {"num_predict": 5.0, "seed": 7.0, "top_k": None}})
    assert (body.stream, body.options.num_predict, body.options.seed, body.options.top_k) == (True, 5, 7, None)
    assert type(body.options.num_predict) is int
    assert converted([{"id": 1.0, "scale": 1}], Scales) == [Scale(id=1, scale=1.0)]
    with pytest.raises(HTTPException, match=r"options\.num_predict must be an integer, not 5\.5"):
        OllamaChatBody.of({"options": {"num_predict": 5.5}})


def test_every_endpoint_with_a_body_declares_it():
    without = {each.paths[0] for each in operations() if each.method == "POST" and each.body is None}
    forms = {"/cors-proxy", "/v1/files", "/v1/audio/transcriptions", "/v1/audio/translations"}
    assert without == {"/api/push", "/api/blobs/{digest}", "/props", "/v1/batches/{id}/cancel", *forms}


# --- over HTTP

NUMERIC = {
    name: schema
    for kind in BODIES
    for name, schema in fields(kind).items()
    if any(each.get("type") in ("integer", "number") for each in schemas.alternatives(schema))
}
PATHS = ("/v1/chat/completions", "/v1/completions", "/completion", "/v1/responses", "/v1/messages", "/v1/embeddings")
TAKEN = {path: fields(each.body) for each in operations() for path in each.paths if path in PATHS}
TAKEN["/api/chat"] = fields(OllamaOptions)


def accepted(name: str) -> list[object]:
    """Numbers that a field takes, its bounds among them."""
    schema = NUMERIC[name]
    (kind,) = [kind for kind in schemas.alternatives(schema) if kind.get("type") in ("integer", "number")]
    fitting = [value for value in NUMBERS if schemas.explain(value, schema, name) is None]
    values = [kind["minimum"], kind["maximum"], *fitting]
    return list({repr(value): value for value in values}.values())


@pytest.mark.parametrize("name", [name for name in NUMERIC if any(name in taken for taken in TAKEN.values())])
def test_no_number_is_the_servers_fault(server, name):
    """Whatever a field takes, an answer comes, and its engine goes on."""
    alone = GOOD | {"logit_bias": {str(server.model.tokenizer.eos): 1000}}  # at once, however many tokens there may be
    for value in accepted(name):
        body = alone | {name: value}
        wrapped = {"messages": GOOD["messages"], "options": alone | {"num_predict": 1, name: value}, "stream": False}
        for path in (path for path, taken in TAKEN.items() if name in taken):
            response = server.client.post(path, json=wrapped if path == "/api/chat" else body)
            assert response.status_code in (200, 400, 429), (path, value, response.text)


@pytest.mark.parametrize("value", [-1, 0, 2**31, 2**53, 2**63, 2**64, 1e308, -1e308, True, "5", None, [], {}, [[]]])
def test_no_value_in_a_list_is_the_servers_fault(server, value):
    """Lists of tokens, biases, adapters and texts take hostile values."""
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


def test_every_field_has_a_bound():
    found = {each for kind in BODIES for name, schema in fields(kind).items() for each in without_bounds(name, schema)}
    assert found == set()
    assert len({name for kind in BODIES for name in fields(kind)}) > 130


def test_a_new_field_without_a_bound_is_found():
    class NewBody(ModelBody):
        number: int | None = None
        real: float | None = None
        words: str = ""
        items: list[int] | None = None
        nested: dict[str, Any] | None = None
        scale: Scale | None = None

    found = {each for name, schema in fields(NewBody).items() for each in without_bounds(name, schema)}
    assert found == {"number: integer", "real: number", "words: string", "items: array", "nested: object"}
