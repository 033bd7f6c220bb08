import dspy
from clients_common import MODEL, URL, check, run

lm = dspy.LM(f"openai/{MODEL}", api_base=f"{URL}/v1", api_key="none", max_tokens=10, cache=False)


@check
def chat():
    return lm("Once upon a time")[0]


@check
def embeddings():
    return len(dspy.Embedder(f"openai/{MODEL}", api_base=f"{URL}/v1", api_key="none", caching=False)(["a", "b"])) == 2


run()
