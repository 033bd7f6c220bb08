"""The command ``pumice serve``: its options, its models, and its process."""
