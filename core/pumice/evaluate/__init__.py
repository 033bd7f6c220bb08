"""Evaluate models: speed, perplexity, divergence from another model, and tasks with several answers."""
