"""``pumice route``: one address in front of several servers of the same models."""
