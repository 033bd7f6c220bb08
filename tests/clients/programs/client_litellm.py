import litellm
from clients_common import MESSAGES, MODEL, TOOL, URL, run

KEY = {"api_base": f"{URL}/v1", "api_key": "none"}


def stream():
    chunks = litellm.completion(f"openai/{MODEL}", MESSAGES, max_tokens=10, stream=True, **KEY)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def tools():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = litellm.completion(f"openai/{MODEL}", MESSAGES, tools=[TOOL], tool_choice=choice, **KEY)
    return answer.choices[0].message.tool_calls[0].function.name


def structured():
    answer = litellm.completion(
        f"openai/{MODEL}", MESSAGES, max_tokens=60, response_format={"type": "json_object"}, **KEY
    )
    return answer.choices[0].message.content.startswith("{")


def anthropic_chat():
    answer = litellm.completion(f"anthropic/{MODEL}", MESSAGES, max_tokens=10, api_base=URL, api_key="none")
    return answer.choices[0].message.content


run(
    chat=lambda: litellm.completion(f"openai/{MODEL}", MESSAGES, max_tokens=10, **KEY).choices[0].message.content,
    stream=stream,
    tools=tools,
    structured=structured,
    embeddings=lambda: litellm.embedding(f"openai/{MODEL}", ["a", "b"], **KEY).data[1]["embedding"],
    responses=lambda: litellm.responses(model=f"openai/{MODEL}", input="Once", max_output_tokens=10, **KEY).output,
    ollama_chat=lambda: (
        litellm.completion(f"ollama_chat/{MODEL}", MESSAGES, max_tokens=10, api_base=URL).choices[0].message.content
    ),
    anthropic_chat=anthropic_chat,
)
