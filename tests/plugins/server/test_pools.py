"""Pools: bounds, shares, deadlines and metrics of every place where requests wait."""

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies
from starlette.exceptions import HTTPException

import pumice_server
from pumice.plugin.unstable import CLIENT
from pumice_server import pools
from pumice_server.endpoints.conversations import Conversations
from pumice_server.pools import FILES, MEDIA, SCHEMAS, Pool, share
from server_thread import running
from waiting import PATIENCE

WAITING = {"ThreadPoolExecutor", "to_thread", "run_in_executor", "run_in_threadpool", "Semaphore", "BoundedSemaphore"}
WAITING |= {"Condition", "Pool", "limit_concurrency", "CapacityLimiter"}


@pytest.fixture
def pool(monkeypatch):
    """A pool of two threads and a queue of four, that is in no table."""
    monkeypatch.setattr(Pool, "all", [])
    return Pool("test", "calls wait", 2, 4, PATIENCE)


class Calls:
    """Calls of clients, each of which ends when it is let."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.order = pool, []
        self._let = threading.Semaphore(0)

    def begin(self, client: str) -> asyncio.Task[None]:
        def work() -> None:
            self.order.append(client)
            assert self._let.acquire(timeout=PATIENCE)

        async def call() -> None:
            CLIENT.set(client)
            await self.pool(work)

        return asyncio.create_task(call())

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0.002)

    def let(self, n: int = 1) -> None:
        self._let.release(n)


def test_clients_share_threads_and_queue(pool):
    async def run() -> None:
        calls = Calls(pool)
        busy = [calls.begin("a") for _ in range(6)]
        await calls.settle()
        assert (calls.order, pool.n_held, pool.n_waiting) == (["a"], 1, 5), "one client never has the last thread"
        quick = calls.begin("b")
        await calls.settle()
        assert calls.order == ["a", "b"]
        assert busy[-1].exception().status_code == 503, "the client with most gives its latest place up"
        with pytest.raises(HTTPException, match="too many calls wait; try again later"):
            await calls.begin("a")
        assert pool.n_refused == 2
        busy[1].cancel()
        await calls.settle()
        assert pool.n_waiting == 3, "a client that left is not in the queue"
        calls.let(9)
        await quick
        await asyncio.gather(*busy, return_exceptions=True)
        await calls.settle()
        assert (pool.n_held, pool.n_waiting) == (0, 0)

    asyncio.run(run())


def test_a_wait_has_an_end(pool):
    pool.seconds = 0.3

    async def run() -> None:
        calls = Calls(pool)
        first = [calls.begin(client) for client in "ab"]
        await calls.settle()
        with pytest.raises(HTTPException, match=r"too many calls wait for 0\.3 seconds; try again later"):
            await calls.begin("c")
        own = calls.begin("")  # the server's own work has none
        await asyncio.sleep(0.5)
        calls.let(3)
        await asyncio.gather(*first, own)
        assert pool.n_waiting == 0

    asyncio.run(run())


@given(strategies.lists(strategies.tuples(strategies.sampled_from("abc"), strategies.integers(-5, 60))))
def test_no_client_holds_more_than_its_share(steps):
    before, Pool.all = Pool.all, []
    pool, places = Pool("test", "things are held", 100), []
    Pool.all = before
    for client, n in steps:
        token = CLIENT.set(client)
        held = pool.held.copy()
        try:
            if n >= 0:
                places.append(pool.take(n))
                assert held[client] + n <= max(1, 10, (100 - held.total() + held[client]) // 2)
            elif places:
                places.pop().release()
        except HTTPException:
            assert held[client] + n > share(100, client, held.total() - held[client])
        finally:
            CLIENT.reset(token)
        assert pool.held == Counter({c: sum(p.n for p in places if p.client == c) for c in "abc"})
        assert pool.n_held <= 100


def test_chats_and_properties_do_not_wait_for_schemas(model):
    """Nor for images and files, however many of them there are."""
    let = threading.Event()

    async def fill(pool: Pool) -> list[asyncio.Task[bool]]:
        CLIENT.set("127.0.0.1")
        tasks = [asyncio.create_task(pool(let.wait, PATIENCE)) for _ in range(2 * pool.n_places)]
        await asyncio.sleep(0.05)
        return tasks

    async def ask(url: str) -> None:
        tasks = [task for pool in (SCHEMAS, MEDIA, FILES) for task in await fill(pool)]
        try:
            chat = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}
            few = {"prompt": "a", "max_tokens": 2}
            for path, body in (("/v1/chat/completions", chat), ("/props", None), ("/v1/completions", few)):
                method = "POST" if body else "GET"
                answer = await asyncio.to_thread(server.client.request, method, path, json=body)
                assert answer.status_code == 200, path
            metrics = (await asyncio.to_thread(server.client.get, "/metrics")).text
            assert 'pumice_pool_held{pool="schemas"} 3.0' in metrics
            assert 'pumice_pool_waiting{pool="schemas"} 5.0' in metrics
        finally:
            let.set()
            await asyncio.gather(*tasks)

    with running(model, metrics=True) as server:
        asyncio.run(ask(server.url))


APART = {  # what no client waits for
    ("served_models.py", "to_thread"): "the server ends",
    ("model_loading.py", "to_thread"): "models are closed",
    ("model_service.py", "to_thread"): "a hanging engine is killed",
    ("serving.py", "run_in_threadpool"): "the server begins",
    ("serving.py", "limit_concurrency"): "connections, the bound of everything",
}


def test_every_pool_is_in_the_table():
    """Nothing in the server waits outside of a pool."""
    found = set()
    for path in Path(pumice_server.__file__).parent.rglob("*.py"):
        if path.name == "pools.py" or "batch" in path.parts:  # `pumice batch` has no clients
            continue
        calls = re.findall(r"\b(\w+)(?:\(|=)", path.read_text())
        found |= {(path.name, name) for name in calls if name in WAITING}
    assert found == set(APART)
    page = (Path(__file__).parents[3] / "docs/request_limits.md").read_text()
    assert "\n".join(pools.table()) in page, "\n".join(pools.table())


def test_conversations_have_a_share_for_each_key(tmp_path, monkeypatch):
    monkeypatch.setattr("pumice_server.endpoints.conversations.MAX_CONVERSATIONS", 1000)
    for _ in range(2):  # the second time the sizes are counted from the file
        kept = Conversations(tmp_path / "kept.db")
        kept.put("a", "one", "x" * 100)
        kept.put_message("a", "one", "m", "y" * 400)
        with pytest.raises(HTTPException, match="stored conversations have 500 characters, at most 500: delete some"):
            kept.put_message("a", "one", "n", "z")
        kept.put_message("a", "one", "m", "y" * 399)
        kept.put_message("a", "one", "n", "z")
        kept.put("b", "one", "x" * 250)
        with pytest.raises(HTTPException):
            kept.put("b", "two", "x" * 10)
        kept.remove("a", "one")
        kept.put("b", "two", "x" * 200)
        kept.remove("b", "two")
        kept.put("a", "one", "x" * 100)
        kept.remove("b", "one")
