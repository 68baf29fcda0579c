# SPDX-License-Identifier: Apache-2.0
"""soak.py - what only many rounds and many threads show; tools/soak.sh python runs it.

    python python/tests/soak.py cycles MODEL 100000    # open, embed, close; submit, cancel: nothing grows
    python python/tests/soak.py threads MODEL 64 20    # so many threads, so many seconds: the same bytes always (tools/sanitize.sh tsan-python)
"""
import asyncio
import ctypes
import gc
import logging
import os
import random
import sys
import threading
import time
import warnings

import numpy as np

import fletch

TEXTS = ["A cat sits on the mat.", "", "Grüße aus Köln", "x", "the quick brown fox " * 20, "猫は畳の上に座る"]


class Heap(ctypes.Structure):
    """glibc's struct mallinfo2, of the one heap that MALLOC_ARENA_MAX=1 leaves."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Heap


def held() -> dict[str, int]:
    """What the process holds, in KiB where it is memory."""
    gc.collect()
    with open("/proc/self/status") as file:
        facts = dict(line.split(":", 1) for line in file)
    heap = mallinfo2()
    return {"memory": int(facts["RssAnon"].split()[0]), "heap": (heap.uordblks + heap.hblkhd) >> 10,
            "files": len(os.listdir("/proc/self/fd")), "threads": int(facts["Threads"])}


async def cancel_some(model: fletch.Model, count: int) -> None:
    tasks = [asyncio.ensure_future(model.aembed(TEXTS)) for _ in range(count)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, (np.ndarray, asyncio.CancelledError)) for one in ended), ended


def cycles(path: str, count: int) -> None:
    """Half of the rounds open and close, half cancel. What is held is compared with that after a tenth of them.

    asyncio.run itself leaves a block or so of Python's own a round now and then, fletch or no fletch; the heap of the
    library grows by nothing."""
    first, kept = {}, fletch.Model(path, threads=1)
    want = kept.embed(TEXTS)
    for number in range(0, count, 100):
        for _ in range(50):
            with fletch.Model(path, threads=1) as model:
                assert model.embed(TEXTS[0]).tobytes() == want[0].tobytes()
        asyncio.run(cancel_some(kept, 50))
        if not first and number + 100 >= count // 10:
            first = held()
    last = held()
    print(f"{count} rounds:", ", ".join(f"{name} {first[name]} -> {last[name]}" for name in last))
    grown = {name: last[name] - first[name] for name in last}
    assert grown["files"] == grown["threads"] == 0 and grown["heap"] <= 64 and grown["memory"] <= 1024, grown


def threads(path: str, count: int, seconds: float) -> None:
    """Every kind of call from every thread at one model, and models that others open, use and close meanwhile."""
    model, wrong, calls, closed = fletch.Model(path), [], [0] * count, [0] * count
    want = model.embed(TEXTS)
    end = time.monotonic() + seconds
    doomed = [fletch.Model(path, threads=1)]  # who comes by closes it, whoever is inside, and opens the next

    def work(number: int) -> None:
        draw = random.Random(number)

        def ended_by_a_close(texts):
            target = doomed[0]
            try:
                return target.embed(texts) if draw.random() < 0.5 else asyncio.run(target.aembed(texts))
            except fletch.Cancelled:
                closed[number] += 1
                return None

        def cancelled(texts):
            asyncio.run(cancel_some(model, 8))
        kinds = (model.embed, lambda texts: np.stack(list(model.embed_iter(iter(texts), window=2))),
                 lambda texts: asyncio.run(model.aembed(texts)), lambda texts: fletch.shared(path, threads=1).embed(texts),
                 cancelled, ended_by_a_close)
        try:
            while calls[number] == 0 or (time.monotonic() < end and not wrong):
                picked = [draw.randrange(len(TEXTS)) for _ in range(draw.randint(1, 40))]
                rows = draw.choice(kinds)([TEXTS[i] for i in picked])
                if rows is not None and rows.tobytes() != want[picked].tobytes():
                    wrong.append(picked)
                model.tokenize(draw.choice(TEXTS))
                if draw.random() < 0.05:
                    model.stats()
                    before, doomed[0] = doomed[0], fletch.Model(path, threads=1)
                    before.close()
                calls[number] += 1
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{count} threads, {sum(calls)} calls, {min(calls)} to {max(calls)} each, {sum(closed)} ended by a close; wrong: {wrong}")
    assert not wrong


if __name__ == "__main__":
    logging.disable()  # a toy folder has no modules.json, and short positions
    warnings.simplefilter("ignore", fletch.TruncationWarning)
    what, folder, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    cycles(folder, number) if what == "cycles" else threads(folder, number, float(sys.argv[4]))
