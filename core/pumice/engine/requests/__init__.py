"""What clients ask for: prepared requests, jobs of each kind, and the batches that compute them."""
