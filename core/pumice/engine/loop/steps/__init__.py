"""The kinds of submitted steps: how each is submitted, what may follow it, and how its tokens are taken."""
