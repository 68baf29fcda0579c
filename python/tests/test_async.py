# SPDX-License-Identifier: Apache-2.0
"""asyncio: no thread is taken, none is held up.

Must never break: the bytes of the blocking call; a cancelled task takes its texts back and its memory lives until the
library let go; loops in several threads, loops that end early, and storms of cancels leave a model that works."""
import asyncio
import os
import threading

import numpy as np
import pytest
from conftest import MODEL, TEXTS

import fletch


def test_awaits_give_the_bytes_of_the_call(model, vectors):
    async def main():
        alone = await asyncio.gather(*(model.aembed(text) for text in TEXTS * 20))
        together = await model.aembed(TEXTS)
        return np.stack(alone).reshape(20, len(TEXTS), -1), together
    alone, together = asyncio.run(main())
    assert (alone == vectors).all() and (together == vectors).all()


def test_the_loop_goes_on_meanwhile(model):
    async def main():
        ticks = 0
        task = asyncio.ensure_future(model.aembed([f"{i} some words to embed" for i in range(500)]))
        while not task.done():
            await asyncio.sleep(0)
            ticks += 1
        await task
        return ticks
    assert asyncio.run(main()) > 100


def test_facts_errors_and_deadlines(model):
    async def main():
        found = await model.aembed(["x", None], info=True, on_error="null")
        assert list(found.status) == [0, -1]
        with pytest.raises(TypeError, match="text 0"):
            await model.aembed([3])
        with pytest.raises(fletch.TooLong) as caught:
            await model.aembed(["x", "word " * 600], truncate="error")
        assert caught.value.where == 1
        for deadline in (0, -1):
            with pytest.raises(TimeoutError):
                await model.aembed("x", deadline=deadline)
        with pytest.raises(fletch.DeadlineExceeded):
            await model.aembed([f"{i} " + "a longer text to embed " * 20 for i in range(3000)], deadline=0.001)
        with pytest.raises(ValueError, match="interactive, bulk"):
            await model.aembed("x", lane="fast")
        with pytest.warns(fletch.TruncationWarning):
            await model.aembed("word " * 600)
        rows = await model.aembed("x", lane="bulk", deadline=60)
        assert rows.shape == (384,)
        assert (await model.aembed_query("x") == rows).all() and (await model.aembed_document(["x"]))[0].shape == (384,)
    asyncio.run(main())


def test_cancel_storm(model):
    async def main():
        for _ in range(20):
            tasks = [asyncio.ensure_future(model.aembed([f"{i} a text that is cancelled" for i in range(50)])) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, (asyncio.CancelledError, np.ndarray)) for result in results)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(model.aembed([f"{i} " + "a longer text to embed " * 20 for i in range(3000)]), 0.001)
        return await model.aembed("x")
    assert (asyncio.run(main()) == model.embed("x")).all()


def test_loops_in_threads(model, vectors):
    wrong = []

    def run():
        async def main():
            return np.stack(await asyncio.gather(*(model.aembed(text) for text in TEXTS * 3)))
        if not (asyncio.run(main()).reshape(3, len(TEXTS), -1) == vectors).all():
            wrong.append(1)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loop_that_ends_early(model):
    for _ in range(20):
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(model.aembed([f"{i} a text nobody waits for" for i in range(100)])) for _ in range(4)]
        loop.call_soon(loop.stop)
        loop.run_forever()
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(model.aembed("x"))
    import gc
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= fds, "an eventfd goes with its loop"
    assert model.embed("x").shape == (384,)


def test_busy_is_told(vectors):
    with fletch.Model(MODEL, config={"server.max_queue_tokens": 64}) as small:
        async def main():
            return await asyncio.gather(*(small.aembed("several words to wait with") for _ in range(300)),
                                        return_exceptions=True)
        results = asyncio.run(main())
        busy = [result for result in results if isinstance(result, fletch.Busy)]
        assert busy and any(isinstance(result, np.ndarray) for result in results)
        assert (small.embed(TEXTS * 10)[: len(TEXTS)] == vectors).all(), "a call that waits, waits"


def test_close_ends_what_is_in_flight():
    model = fletch.Model(MODEL)

    async def main():
        tasks = [asyncio.ensure_future(model.aembed([f"{i} a text of some words" for i in range(500)])) for _ in range(20)]
        await asyncio.sleep(0)
        model.close()
        return await asyncio.gather(*tasks, return_exceptions=True)
    results = asyncio.run(main())
    assert all(isinstance(result, (np.ndarray, fletch.Cancelled)) for result in results)
    assert any(isinstance(result, fletch.Cancelled) for result in results)
