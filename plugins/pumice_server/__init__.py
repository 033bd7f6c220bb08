"""``pumice serve``: models over HTTP, by the protocols of OpenAI and llama-server."""
