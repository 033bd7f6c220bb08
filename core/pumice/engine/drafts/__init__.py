"""Speculative decoding: proposers of drafts, and the choice of when and how many tokens to draft."""
