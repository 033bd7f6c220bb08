"""Streams of a generation: its pieces and its end, made of the engine's events, for a thread or a coroutine."""
