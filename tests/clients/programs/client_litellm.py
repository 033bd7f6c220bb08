import litellm
from clients_common import CHOICE, MESSAGES, MODEL, TOOL, URL, run, text_of

KEY = {"api_base": f"{URL}/v1", "api_key": "none"}


def ask(provider="openai", **options):
    return litellm.completion(f"{provider}/{MODEL}", MESSAGES, **{**KEY, **options}).choices[0].message


run(
    chat=lambda: ask(max_tokens=10).content,
    stream=lambda: text_of(litellm.completion(f"openai/{MODEL}", MESSAGES, max_tokens=10, stream=True, **KEY)),
    tools=lambda: ask(tools=[TOOL], tool_choice=CHOICE).tool_calls[0].function.name,
    structured=lambda: ask(max_tokens=60, response_format={"type": "json_object"}).content.startswith("{"),
    embeddings=lambda: litellm.embedding(f"openai/{MODEL}", ["a", "b"], **KEY).data[1]["embedding"],
    responses=lambda: litellm.responses(model=f"openai/{MODEL}", input="Once", max_output_tokens=10, **KEY).output,
    ollama_chat=lambda: ask("ollama_chat", max_tokens=10, api_base=URL).content,
    anthropic_chat=lambda: ask("anthropic", max_tokens=10, api_base=URL).content,
)
