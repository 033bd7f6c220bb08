"""``pumice batch``: a file of requests, in OpenAI's batch format, and a file of their results."""
