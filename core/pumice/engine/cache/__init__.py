"""The KV cache: blocks, prefixes that sequences share, checkpoints of recurrent states, and tiers of colder memory."""
