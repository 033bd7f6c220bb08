"""Run a model's engine in a process of its own, whose failures do not affect this process."""
