"""Models that speak: their graphs, and the engine that runs them."""
