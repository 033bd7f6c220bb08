"""``pumice serve``: models over HTTP, by the protocols of OpenAI, Anthropic, Ollama and llama-server."""
