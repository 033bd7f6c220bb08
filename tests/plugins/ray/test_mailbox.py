"""Events are joined in messages: the first leaves at once, those of the next moments together, none is lost."""

import asyncio
import threading
import time

from pumice.engine.messages import Output
from pumice_ray.mailbox import Mailbox
from waiting import PATIENCE


def events(*ids: int) -> list[Output]:
    return [Output(id, [1], ["a"]) for id in ids]


def test_the_first_leaves_at_once_and_the_next_together():
    async def run() -> None:
        first = Mailbox(3600.0)
        first.put(events(1))
        assert await asyncio.wait_for(first.take(), PATIENCE) == events(1)
        mailbox = Mailbox(0.2)
        began = time.monotonic()
        mailbox.put(events(1))
        assert await mailbox.take() == events(1)
        for id in (2, 3):
            mailbox.put(events(id))
        assert await mailbox.take() == events(2, 3)
        assert time.monotonic() - began >= 0.2
        mailbox.put(events(4))
        mailbox.close()
        assert await mailbox.take() == events(4)
        assert await mailbox.take() is None
        assert await mailbox.take() is None

    asyncio.run(run())


def test_none_is_lost_or_out_of_order_when_a_thread_writes():
    async def run() -> list[int]:
        mailbox = Mailbox(0.001)

        def write() -> None:
            for id in range(5000):
                mailbox.put(events(id))
            mailbox.close()

        threading.Thread(target=write).start()
        found = []
        while (message := await mailbox.take()) is not None:
            found += [event.id for event in message]
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == list(range(5000))
