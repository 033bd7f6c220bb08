"""HTTP: connections, admission, bodies of requests, and answers."""
