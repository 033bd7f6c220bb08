from clients_common import MODEL, URL, run
from mirascope import llm

llm.register_provider("openai", scope="openai/", base_url=f"{URL}/v1", api_key="none")


run(
    chat=lambda: llm.Model(f"openai/{MODEL}:completions", max_tokens=10).call("Once upon a time").text(),
    stream=lambda: "".join(
        llm.Model(f"openai/{MODEL}:completions", max_tokens=10).stream("Once upon a time").text_stream()
    ),
)
