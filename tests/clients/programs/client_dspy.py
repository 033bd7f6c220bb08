import dspy
from clients_common import MODEL, URL, run

lm = dspy.LM(f"openai/{MODEL}", api_base=f"{URL}/v1", api_key="none", max_tokens=10, cache=False)


run(
    chat=lambda: lm("Once upon a time")[0],
    embeddings=lambda: (
        len(dspy.Embedder(f"openai/{MODEL}", api_base=f"{URL}/v1", api_key="none", caching=False)(["a", "b"])) == 2
    ),
)
