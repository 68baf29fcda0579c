# SPDX-License-Identifier: Apache-2.0
"""A connection that is the only one to speak has short texts embedded on its own I/O thread: it must not notice."""
import json

import serving

TEXTS = ["hello", "a longer text about arrows", "ein Text"]
ROUND = 8 * len(TEXTS)  # by then it is known to be alone


def ask(raw, text):
    return raw.send(serving.request(body=json.dumps({"inputs": text}).encode())).reply()


def test_the_bytes_are_those_of_company(server):
    want = [server.embed(text).body for text in TEXTS]
    with server.raw() as raw, server.raw() as other:
        for _ in range(2):
            for i in range(ROUND):
                reply = ask(raw, TEXTS[i % len(TEXTS)])
                assert reply.status == 200 and reply.body == want[i % len(TEXTS)]
            assert ask(other, TEXTS[0]).body == want[0]


def test_pipelined_requests_are_answered_in_order(server):
    want = [server.embed(text).body for text in TEXTS]
    with server.raw() as raw:
        raw.send(b"".join(serving.request(body=json.dumps({"inputs": TEXTS[i % len(TEXTS)]}).encode())
                          for i in range(ROUND)))
        for i in range(ROUND):
            assert raw.reply().body == want[i % len(TEXTS)]


def test_an_engine_that_fails_is_told_and_mended(faulty):
    server = faulty()
    with server.raw() as raw:
        for _ in range(2):
            server.plan("none")
            for _ in range(ROUND):
                assert ask(raw, TEXTS[0]).status == 200
            server.plan("silent_nan")
            assert ask(raw, TEXTS[0]).status == 500
            server.plan("broken", times=1)
            assert ask(raw, TEXTS[0]).status == 200, "opened again, and the batch run again"
