# SPDX-License-Identifier: Apache-2.0
"""A process and its children: fork, spawn, pickling, Ctrl-C, the end of the interpreter.

Must never break: a forked child embeds with the parent's bytes whatever the parent was doing; an interrupt ends a long
call; a program may end at any moment; open and close leave nothing behind."""
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from conftest import MODEL, TEXTS

import fletch


def in_child(work) -> bytes:
    """What work() returns in a forked child; a child that hangs is ended and fails the test."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(300)
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        told = stream.read()
    assert os.waitpid(child, 0)[1] == 0
    return told


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_fork_before_during_and_after(vectors):
    model = fletch.Model(MODEL)
    expected = vectors[0].tobytes()
    assert in_child(lambda: model.embed(TEXTS[0]).tobytes()) == expected, "before the first embed"
    model.embed(TEXTS)
    assert in_child(lambda: model.embed(TEXTS)[0].tobytes()) == expected, "after"
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            model.embed(TEXTS * 40)
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert in_child(lambda: model.embed(TEXTS[0]).tobytes()) == expected, "during"
    stop.set()
    for thread in threads:
        thread.join()

    def asynchronous():
        import asyncio
        return asyncio.run(model.aembed(TEXTS[0])).tobytes()
    assert in_child(asynchronous) == expected
    assert in_child(lambda: in_child(lambda: model.embed(TEXTS[0]).tobytes())) == expected, "grandchildren too"
    assert model.embed(TEXTS[0]).tobytes() == expected, "and the parent goes on"
    model.close()


FORGET = textwrap.dedent("""
    import asyncio, gc, select, signal, warnings
    warnings.simplefilter("ignore")
    signal.alarm(300)  # a parent that waits for ever ends here
    model = fletch.Model(MODEL)
    texts = ["one", "two", "three", "four", "five", "six"]
    def ended():  # something in flight did, and nobody has read of it
        events = [int(name) for name in os.listdir("/proc/self/fd")
                  if os.path.islink(f"/proc/self/fd/{name}") and "eventfd" in os.readlink(f"/proc/self/fd/{name}")]
        assert events
        return select.select(events, [], [], 0.5)[0]
    def start():
        for _ in range(20):
            iterator = model.embed_iter(texts, window=2)
            rows = [next(iterator)]
            if ended():  # mostly: the second window did not end with the first
                break
        return iterator, rows
    def fork(child):
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(300)  # fork leaves the parent's alarm behind
                child()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
""")


def test_a_child_that_drops_an_iterator_leaves_the_parent_its_wake_up(python):
    told = python(FORGET + textwrap.dedent("""
        def drop():
            global iterator
            files = len(os.listdir("/proc/self/fd"))
            del iterator
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) == files - 1
            assert len(list(model.embed_iter(texts, window=2))) == 6, "one of its own works"
        iterator, rows = start()
        fork(drop)
        rows += iterator
        print(len(rows), all((a == b).all() for a, b in zip(rows, model.embed(texts))))
    """))
    assert told == "6 True"


def test_a_child_cannot_go_on_with_an_iterator(python):
    told = python(FORGET + textwrap.dedent("""
        def go_on():
            try:
                list(iterator)
            except fletch.ForkError:
                return
            assert False
        iterator, rows = start()
        fork(go_on)
        print(len(rows) + len(list(iterator)))
    """))
    assert told == "6"


def test_a_child_that_drops_a_loop_leaves_the_parent_its_wake_up(python):
    told = python(FORGET + textwrap.dedent("""
        from fletch import _loop
        def drop():
            global loop, task, channel
            assert not _loop._channels
            assert channel.take_done() == []
            del channel, loop, task
            gc.collect()
            asyncio.run(model.aembed(texts))
        async def send():
            task = asyncio.ensure_future(model.aembed("one"))
            await asyncio.sleep(0)
            return task
        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(send())
        channel = _loop._channels[loop]
        ended()
        fork(drop)
        print((loop.run_until_complete(task) == model.embed("one")).all())
        loop.close()
    """))
    assert told.startswith("True")  # asyncio in debug mode tells of slow steps


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_model_on_a_device_refuses_to_follow():
    model = fletch.Model(MODEL)
    model._facts["provider"] = "cuda"

    def work():
        try:
            model.embed("x")
        except fletch.ForkError as error:
            return f"{error.code} {error}".encode()
        return b"no error"
    told = in_child(work)
    assert told.startswith(b"EUNSUPPORTED ") and b"spawn" in told
    model.close()


def embed_in_worker(pair):
    model, text = pair
    return model.embed(text).tobytes()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools(model, vectors, method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        rows = pool.map(embed_in_worker, [(model, text) for text in TEXTS])
    assert rows == [row.tobytes() for row in vectors]


def test_pickles(model, vectors):
    again = pickle.loads(pickle.dumps(model))
    assert (again.embed(TEXTS) == vectors).all() and again.path == model.path
    again.close()


def test_interrupt_ends_a_long_call(python):
    told = python(textwrap.dedent("""
        import signal, threading, time
        model = fletch.Model(MODEL)
        texts = [f"{i} " + "some words that take a while " * 20 for i in range(20000)]
        model.embed(texts[:10])
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            model.embed(texts, truncate="right")
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", model.embed("x").shape)
    """))
    assert told == "interrupted (384,)"


def test_the_interpreter_ends_at_any_moment(python):
    for how in ("", "sys.exit(0)", "loop = None"):
        python(textwrap.dedent("""
            import asyncio, threading, gc
            model = fletch.Model(MODEL)
            texts = [f"{i} some words to embed" for i in range(1000)]
            threading.Thread(target=lambda: model.embed(texts), daemon=True).start()
            iterator = model.embed_iter(iter(texts), window=100)
            next(iterator)
            async def main():
                global loop
                loop = asyncio.get_running_loop()
                tasks = [loop.create_task(model.aembed(texts)) for _ in range(3)]
                await asyncio.sleep(0.05)
                for task in tasks:
                    task.cancel()
            asyncio.run(main())
        """) + how)


def test_close_beside_embed():
    for _ in range(5):
        model, errors = fletch.Model(MODEL), []

        def work():
            try:
                while True:
                    model.embed([f"{i} some words" for i in range(300)])
            except fletch.Cancelled:
                pass
            except BaseException as error:  # noqa: BLE001
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        model.embed("x")
        model.close()
        model.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not errors
        with pytest.raises(fletch.Cancelled, match="closed"):
            model.embed("x")
        assert "closed" in repr(model)


def test_open_and_close_leave_nothing(python):
    told = python(textwrap.dedent("""
        import gc
        def rss():
            with open("/proc/self/statm") as stream:
                return int(stream.read().split()[1]) * 4096
        def cycle():
            with fletch.Model(MODEL) as model:
                model.embed(["a", "b"])
        for _ in range(10):
            cycle()
        gc.collect()
        before, files = rss(), len(os.listdir("/proc/self/fd"))
        for _ in range(40):
            cycle()
        gc.collect()
        print(rss() - before, len(os.listdir("/proc/self/fd")) - files)
    """))
    grown, files = map(int, told.split())
    assert grown < 8 << 20 and files == 0


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((), np.float32),
                                  np.zeros((2, 3, 4), np.float32)], ids=["float64", "1-D", "0-D", "3-D"])
def test_rows_without_an_arrow_form_are_let_go(rows):
    rows = rows.copy()
    before = sys.getrefcount(rows)
    for _ in range(3):
        with pytest.raises(TypeError, match="cannot be exported to Arrow"):
            fletch._fletch.export_rows(rows, None, 0)
    assert sys.getrefcount(rows) == before


def test_log_lines_reach_logging(python):
    told = python("import logging\nlogging.basicConfig(level=logging.DEBUG)\nfletch.Model(MODEL)")
    assert "DEBUG:fletch:" in told and "tensors used" in told


def test_python_m_fletch_is_the_program(tmp_path):
    fake = tmp_path / "fletch"
    fake.write_text("#!/bin/sh\necho program \"$@\"\n")
    fake.chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "fletch", "embed", "-h"], capture_output=True, text=True,
                          env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert "embed" in done.stdout, done.stderr


def test_import_is_small(python):
    told = python("print([name for name in ('asyncio', 'torch', 'pandas', 'pyarrow', 'tqdm', 'huggingface_hub') "
                  "if name in sys.modules])")
    assert told == "[]"


def test_large_and_odd_texts(model):
    for big in ("wörd " * 17_000_000, "word " * 21_000_000):  # 100 MB each
        assert (model.embed(big, truncate="right") == model.embed(big[:20_000], truncate="right")).all()
    assert np.isfinite(model.embed(["\x00" * 1000, "\ufffd" * 100, "\U0010ffff"], truncate="right")).all()
