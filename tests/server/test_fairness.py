# SPDX-License-Identifier: Apache-2.0
"""What one API key sends does not hold up another beyond its share. Order is counted, by the log's lines; no time is."""
import json
import threading

import serving

TEXTS = [f"text {i}" for i in range(25)]


def key(word):
    return {"authorization": f"Bearer {word}"}


def send(server, word, texts, answers):
    body = json.dumps({"inputs": texts}).encode()
    thread = threading.Thread(target=lambda: answers.append(server.ask(body=body, headers=key(word)).status))
    thread.start()
    return thread


def start_held(faulty, tmp_path, keys):
    (tmp_path / "keys").write_text(keys)
    server = faulty("--server-api-key-file", tmp_path / "keys")
    server.hold()
    return server


def test_a_thousand_texts_of_one_key_do_not_hold_up_another(faulty, tmp_path):
    server = start_held(faulty, tmp_path, "sk-many name=many\nsk-one name=one\n")
    answers = []
    threads = [send(server, "sk-many", [f"{i} {text}" for text in TEXTS], answers) for i in range(40)]
    server.wait_metric('fletch_key_waiting_texts{key="many"}', lambda texts: texts == 1000)
    threads.append(send(server, "sk-one", "short", answers))
    server.wait_metric('fletch_key_waiting_texts{key="one"}', lambda texts: texts == 1)
    server.let_go()
    for thread in threads:
        thread.join(serving.WAIT)
    assert answers == [200] * 41
    done = serving.until(lambda: len(found := [event for event in server.events() if event.get("route") == "/embed"]) == 41 and found)
    order = [event["key"] for event in done]
    assert order.index("one") < 20, order  # by arrival it would be the last
    tokens = server.metrics()
    assert tokens['fletch_key_tokens_total{key="many"}'] > 1000 > tokens['fletch_key_tokens_total{key="one"}'] > 0
    assert tokens.get('fletch_key_waiting_texts{key="many"}') == 0


def test_a_key_has_so_many_texts_waiting_and_no_more(faulty, tmp_path):
    server = start_held(faulty, tmp_path, "sk-a name=a queue=30\nsk-b name=b weight=3\n")
    answers = []
    threads = [send(server, "sk-a", TEXTS + TEXTS, answers)]  # alone it passes
    server.wait_metric('fletch_key_waiting_texts{key="a"}', lambda texts: texts == 50)
    refused = server.ask(body=json.dumps({"inputs": TEXTS}).encode(), headers=key("sk-a"))
    assert refused.status == 429 and "queue=" in refused.body.decode() and int(refused.headers["retry-after"]) >= 1
    threads.append(send(server, "sk-b", TEXTS, answers))
    server.wait_metric('fletch_key_waiting_texts{key="b"}', lambda texts: texts == 25)
    server.let_go()
    for thread in threads:
        thread.join(serving.WAIT)
    assert answers == [200, 200] and server.metrics()['fletch_rejected_total{reason="key_queue"}'] == 1
    assert server.ask(body=json.dumps({"inputs": TEXTS}).encode(), headers=key("sk-a")).status == 200
