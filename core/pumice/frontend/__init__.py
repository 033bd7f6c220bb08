"""The front of a model: prompts, chat templates, requests and answers, without weights.

The engine is at the other end of a ``ModelEngine``: in a thread, in another process, or on another machine.
"""
