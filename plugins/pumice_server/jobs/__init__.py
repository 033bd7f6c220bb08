"""OpenAI's files and batches: requests that clients leave with the server, and that are answered in the background."""
