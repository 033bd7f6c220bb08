"""Events are joined in messages: the first leaves at once, those of the next moments together, none is lost."""

import asyncio
import threading
import time

from pumice.engine.messages import Finished, Logprobs, Output, Timings
from pumice_ray.mailbox import Mailbox, joined
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


def test_an_urgent_message_sends_the_waiting_ones():
    async def run() -> None:
        mailbox = Mailbox(3600.0)
        mailbox.put(events(1))
        await mailbox.take()
        mailbox.put(events(2))
        asyncio.get_running_loop().call_later(0.01, mailbox.put, events(3), True)
        assert await asyncio.wait_for(mailbox.take(), PATIENCE) == events(2, 3)

    asyncio.run(run())


def test_the_tokens_of_a_completion_are_one_output():
    sure, end = Logprobs(0.0, []), Finished(1, "", "stop", Timings())
    steps = [Output(1, [5], ["a"]), Output(2, [6], ["b"], [sure]), Output(1, [7, 8], ["", "c"]), end]
    again = [Output(1, [9], ["d"]), Output(2, [6], ["b"], [sure])]
    assert joined([*steps, *again]) == [
        Output(1, [5, 7, 8], ["a", "", "c"]),
        Output(2, [6, 6], ["b", "b"], [sure, sure]),
        end,
        Output(1, [9], ["d"]),
    ]


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
