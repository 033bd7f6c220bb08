from clients_common import MODEL, URL, check, run
from mirascope import llm

llm.register_provider("openai", scope="openai/", base_url=f"{URL}/v1", api_key="none")


@check
def chat():
    return llm.Model(f"openai/{MODEL}:completions", max_tokens=10).call("Once upon a time").text()


@check
def stream():
    return "".join(llm.Model(f"openai/{MODEL}:completions", max_tokens=10).stream("Once upon a time").text_stream())


run()
