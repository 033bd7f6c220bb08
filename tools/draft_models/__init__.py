"""A target model, a smaller draft model and an EAGLE-3 head, trained to measure speculative decoding."""
