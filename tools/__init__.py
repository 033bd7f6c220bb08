"""Tools of the project itself, run from the repository root; none is installed."""
