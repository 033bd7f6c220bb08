"""Many requests at once, right, wrong and broken ones: no fault of the server's, and nothing is left of them."""

from concurrent.futures import ThreadPoolExecutor

import faulty_clients
from waiting import wait_until

N_REQUESTS = 200


def test_no_request_is_the_servers_fault(server):
    with ThreadPoolExecutor(6) as threads:
        wrong = [each for each in threads.map(lambda i: faulty_clients.ask(server.url, i), range(N_REQUESTS)) if each]
    assert wrong == []
    wait_until(lambda: server.model.engine.snapshot().n_running == server.model.engine.snapshot().n_waiting == 0)
    entry = server.application.state.models.served_models[0]
    wait_until(lambda: entry.n_users == 0)
    assert server.client.post("/v1/completions", json=faulty_clients.GOOD).status_code == 200
