# SPDX-License-Identifier: Apache-2.0
"""/v1/files and /v1/batches: a line has one answer, the bytes that its request gets by itself, whatever ends the server."""
import json
import os
import random
import resource
import time

import pytest
import serving

OVER = ("completed", "failed", "expired", "cancelled")
SHORT = "a short text"
BAD = {3: "", 7: [], 11: 7}  # inputs that /v1/embeddings refuses


def line(number, **body):
    text = BAD.get(number, f"{SHORT} {number}")
    whole = {"model": serving.NAME, "input": text} | body
    return json.dumps({"custom_id": f"line {number} \u00e9\"", "method": "POST", "url": "/v1/embeddings", "body": whole},
                      ensure_ascii=number % 2 == 0)


def form(data, name="in.jsonl", purpose="batch", boundary="x7", **fields):
    fields = ({"purpose": purpose} if purpose else {}) | fields
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in fields.items()]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/jsonl\r\n\r\n'
    return b"".join(parts) + head.encode() + data + f"\r\n--{boundary}--\r\n".encode()


class Batches:
    """What a client does, without one."""

    def __init__(self, server, key=None):
        self.server, self.headers = server, {"authorization": f"Bearer {key}"} if key else {}

    def ask(self, method, path, body=b"", **headers):
        return self.server.ask(method, path, body, self.headers | {k.replace("_", "-"): v for k, v in headers.items()})

    def upload(self, data, **options):
        reply = self.ask("POST", "/v1/files", form(data, **options), content_type="multipart/form-data; boundary=x7")
        assert reply.status == 200, reply
        return reply.json()["id"]

    def create(self, file, window="24h", **more):
        wanted = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": window} | more
        return self.ask("POST", "/v1/batches", json.dumps(wanted).encode())

    def begin(self, lines, **more):
        return self.create(self.upload("\n".join(lines).encode()), **more).json()["id"]

    def get(self, batch):
        return self.ask("GET", f"/v1/batches/{batch}").json()

    def wait(self, batch, states=OVER):
        serving.until(lambda: self.get(batch)["status"] in states, lambda: self.get(batch))
        return self.get(batch)

    def content(self, file):
        reply = self.ask("GET", f"/v1/files/{file}/content")
        assert reply.status == 200
        return reply.body

    def outputs(self, found):
        """The lines of both files, {custom_id: line}: each once."""
        rows = {}
        for key in ("output_file_id", "error_file_id"):
            for text in self.content(found[key]).splitlines() if found[key] else []:
                row = json.loads(text)
                assert row["custom_id"] not in rows
                assert (row["response"] or {}).get("status_code") == 200 if key[0] == "o" else row["error"] or row["response"]
                rows[row["custom_id"]] = (text, row)
        return rows


@pytest.fixture(scope="module")
def batches(server_of_batches):
    return Batches(server_of_batches)


@pytest.fixture(scope="module")
def server_of_batches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    running = serving.Server(folder, "--server-batches", folder / "kept", "--server-max-body", "8MiB")
    yield running
    assert running.end() == 0, running.log()


def names(count):
    return {json.loads(line(i))["custom_id"] for i in range(count)}


def test_answers_are_those_of_the_route(batches):
    lines = [line(i, **({"dimensions": 8, "encoding_format": "base64"} if i % 5 == 0 else {})) for i in range(40)]
    lines.insert(9, "  \t\r")  # a blank line is none
    text = "\ufeff" + "\r\n".join(lines)
    file = batches.upload(text.encode())
    found = batches.wait(batches.create(file, metadata={"a": "b\"\u00e9"}).json()["id"])
    assert found["status"] == "completed" and found["metadata"] == {"a": "b\"\u00e9"} and found["model"] == serving.NAME
    assert found["request_counts"] == {"total": 40, "completed": 37, "failed": 3}
    assert found["created_at"] <= found["in_progress_at"] <= found["finalizing_at"] <= found["completed_at"]
    assert found["expires_at"] - found["created_at"] == 86400 and found["errors"] is None and found["expired_at"] is None
    rows, tokens = batches.outputs(found), 0
    assert rows.keys() == names(40)
    for text in lines[:9] + lines[10:]:
        sent = json.loads(text)
        whole, row = rows[sent["custom_id"]]
        alone = batches.ask("POST", "/v1/embeddings", json.dumps(sent["body"]).encode())
        assert row["response"]["status_code"] == alone.status and row["error"] is None and row["id"].startswith("batch_req_")
        assert b'"body":' + alone.body + b"}," in whole  # the very bytes
        tokens += alone.json().get("usage", {"total_tokens": 0})["total_tokens"]
    assert found["usage"]["total_tokens"] == tokens
    seen = batches.server.metrics()
    assert seen['fletch_batches{status="completed"}'] >= 1 and seen['fletch_batch_requests_total{result="completed"}'] >= 37


def test_what_is_wrong_with_a_file(batches):
    good = [line(i) for i in range(2)]
    other = json.loads(line(2)) | {"custom_id": "o"}
    bad = ['{"custom_id": "c", ', "[1]", json.dumps(other | {"method": "GET"}), good[1], json.dumps(other | {"custom_id": "p", "url": "/v1/chat/completions"}),
           json.dumps(other | {"custom_id": "q", "body": other["body"] | {"model": "another"}}), json.dumps(other | {"custom_id": "r", "body": "text"}),
           '{"custom_id": "s", "method": "POST", "url": "/v1/embeddings"}', json.dumps(other | {"custom_id": 7})]
    found = batches.wait(batches.begin(good + bad))
    assert found["status"] == "failed" and found["failed_at"] and found["output_file_id"] is None
    assert found["errors"]["object"] == "list"
    assert [(e["line"], e["code"], e["param"]) for e in found["errors"]["data"]] == [
        (3, "invalid_json_line", None), (4, "invalid_request", None), (5, "invalid_request", "method"), (6, "duplicate_custom_id", "custom_id"),
        (7, "url_mismatch", "url"), (8, "model_mismatch", "body.model"), (9, "invalid_request", "body"), (10, "invalid_request", None),
        (11, "invalid_request", None)]
    assert all(e["message"] for e in found["errors"]["data"]) and "line 2" in found["errors"]["data"][3]["message"]
    assert batches.wait(batches.begin([" "]))["errors"]["data"][0]["code"] == "empty_file"
    many = batches.wait(batches.begin(["x"] * 1000))["errors"]["data"]
    assert len(many) == 100 and many[-1]["line"] == 100


def test_one_line_too_many(batches):
    short = '{"custom_id":"%d","method":"POST","url":"/v1/embeddings","body":{"input":"a"}}'
    found = batches.wait(batches.begin([short % i for i in range(50001)]))
    assert found["status"] == "failed" and found["errors"]["data"][0]["code"] == "too_many_tasks"
    assert found["errors"]["data"][0]["line"] == 50001
    whole = batches.begin([short % i for i in range(50000)])  # a line fewer is taken
    assert batches.wait(whole, ("in_progress", "failed"))["request_counts"]["total"] == 50000
    assert batches.ask("POST", f"/v1/batches/{whole}/cancel").json()["status"] == "cancelling"
    done = batches.wait(whole)
    rows = batches.outputs(done)
    assert done["status"] == "cancelled" and done["cancelled_at"] and rows.keys() == {str(i) for i in range(50000)}
    ran = [row for _, row in rows.values() if row["response"]]
    assert len(ran) == done["request_counts"]["completed"] and sum(done["request_counts"].values()) == 100000
    assert {row["error"]["code"] for _, row in rows.values() if not row["response"]} <= {"batch_cancelled"}


def test_pages_and_files(batches):
    data = b'{"a": 1}\n\xff\x00'
    ids = [batches.upload(data, name='a "quoted"; name=\\"x\\".jsonl'.replace('"quoted"', "q")) for _ in range(5)]
    page = batches.ask("GET", "/v1/files?limit=2&purpose=batch").json()
    assert [f["id"] for f in page["data"]] == ids[:2:-1] and page["has_more"] and page["last_id"] == ids[3]
    page = batches.ask("GET", f"/v1/files?limit=3&after={ids[3]}").json()
    assert [f["id"] for f in page["data"]] == ids[2::-1]
    page = batches.ask("GET", f"/v1/files?order=asc&after={ids[3]}").json()
    assert [f["id"] for f in page["data"]] == ids[4:] and not page["has_more"]
    one = batches.ask("GET", f"/v1/files/{ids[0]}").json()
    assert (one["bytes"], one["purpose"], one["filename"], one["status"]) == (len(data), "batch", 'a q; name="x".jsonl', "processed")
    assert batches.content(ids[0]) == data and batches.content(batches.upload(b"")) == b""
    assert batches.ask("DELETE", f"/v1/files/{ids[0]}").json() == {"id": ids[0], "object": "file", "deleted": True}
    for method, path in (("GET", ids[0]), ("GET", ids[0] + "/content"), ("DELETE", ids[0]), ("GET", "x" * 99), ("GET", "lock"), ("GET", "../lock"), ("GET", "%2e")):
        reply = batches.ask(method, f"/v1/files/{path}")
        assert reply.status == 404 and reply.json()["error"]["type"] == "invalid_request_error", path
    first = batches.wait(batches.begin([line(0)]))["id"]
    listed = batches.ask("GET", "/v1/batches?limit=1").json()
    assert [b["id"] for b in listed["data"]] == [first] and listed["has_more"] and listed["object"] == "list"


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=10001", "order=up"])
def test_a_page_that_cannot_be(batches, query):
    assert batches.ask("GET", f"/v1/files?{query}").status == 400


@pytest.mark.parametrize("change, word", [
    ({"purpose": "fine-tune"}, "purpose"), ({"purpose": ""}, "purpose"), ({"boundary": "other"}, "boundary"),
    ({"expires_after[seconds]": "5", "expires_after[anchor]": "created_at"}, "expires_after"), ({"expires_after[seconds]": "7200"}, "expires_after")])
def test_a_form_that_cannot_be(batches, change, word):
    reply = batches.ask("POST", "/v1/files", form(b"{}", **change), content_type="multipart/form-data; boundary=x7")
    assert reply.status == 400 and word in reply.json()["error"]["message"]


@pytest.mark.parametrize("change, word", [
    ({"endpoint": "/v1/chat/completions"}, "endpoint"), ({"completion_window": "0h"}, "completion_window"), ({"completion_window": "1000h"}, "999"),
    ({"completion_window": 24}, "completion_window"), ({"input_file_id": "file-none"}, "file-none"), ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"), ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "seconds")])
def test_a_batch_that_cannot_be(batches, change, word):
    reply = batches.create(change.pop("input_file_id", None) or batches.upload(b"{}"), **change)
    assert reply.status == (404 if word == "file-none" else 400) and word in reply.json()["error"]["message"]


def test_paths_have_no_more_than_they_say(batches):
    batch = batches.wait(batches.begin([line(0)]))
    for path in (f"batches/{batch['id']}/x", f"files/{batch['output_file_id']}/x", f"files/{batch['output_file_id']}/content/content", "files//content"):
        assert batches.ask("GET", f"/v1/{path}").status == 404, path
    reply = batches.ask("GET", f"/v1/batches/{batch['id']}/cancel")
    assert reply.status == 405 and reply.headers["allow"] == "POST, OPTIONS"
    reply = batches.ask("DELETE", f"/v1/files/{batch['output_file_id']}/content")
    assert reply.status == 405 and reply.headers["allow"] == "GET, HEAD, OPTIONS"


def test_without_a_folder(server):
    for method, path in (("POST", "/v1/files"), ("GET", "/v1/batches"), ("GET", "/v1/files/x/content"), ("POST", "/v1/batches/x/cancel")):
        reply = server.ask(method, path)
        assert reply.status == 404 and "--server-batches" in reply.json()["error"]["message"]


def test_a_folder_that_is_taken_or_damaged(start, tmp_path):
    start("--server-batches", tmp_path / "kept")
    second = serving.Server(tmp_path, "--server-batches", tmp_path / "kept", ready=False)
    assert second.process.wait(serving.WAIT) == 2 and "server.batches" in second.log() and "another process" in second.log()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "batch_1.json").write_text('{"id": ')
    third = serving.Server(tmp_path, "--server-batches", tmp_path / "bad", ready=False)
    assert third.process.wait(serving.WAIT) == 2 and "batch_1.json" in third.log()


def test_a_batch_is_its_keys_work(start, tmp_path):
    """By weight and in tokens; a bound for texts that wait does not stop it, and it takes none of that from requests."""
    (tmp_path / "keys").write_text("key-a name=team queue=1 weight=3\nkey-b name=other\n")
    server = start("--server-api-key-file", tmp_path / "keys", "--server-batches", tmp_path / "kept")
    a = Batches(server, "key-a")
    lines = [line(i) for i in range(20, 320)]
    batch = a.begin(lines)
    asked = [a.ask("POST", "/v1/embeddings", json.dumps(json.loads(lines[0])["body"]).encode()) for _ in range(20)]
    assert all(reply.status == 200 for reply in asked)
    found = a.wait(batch)
    assert found["request_counts"] == {"total": 300, "completed": 300, "failed": 0}
    spent = sum(row["response"]["body"]["usage"]["total_tokens"] for _, row in a.outputs(found).values())
    spent += sum(reply.json()["usage"]["total_tokens"] for reply in asked)
    assert server.metrics()['fletch_key_tokens_total{key="team"}'] == spent


def test_a_model_that_is_long_in_opening_holds_up_no_cancel(faulty, tmp_path):
    server = faulty("--models", f"a={serving.MODEL}", "--server-batches", tmp_path / "kept")
    b = Batches(server)
    server.hold()  # opening ends with a first batch
    batch = b.begin([line(i, model="a") for i in range(20, 40)])
    b.wait(batch, ["in_progress"])
    assert b.ask("POST", f"/v1/batches/{batch}/cancel").status == 200
    found = b.wait(batch)
    assert found["status"] == "cancelled" and len(b.outputs(found)) == 20
    server.let_go()
    assert b.wait(b.begin([line(i, model="a") for i in range(20, 40)]))["request_counts"]["completed"] == 20


def test_keys_see_their_own(start, tmp_path):
    (tmp_path / "keys").write_text("key-a name=team\nkey-b name=team\nkey-c\n")
    server = start("--server-api-key-file", tmp_path / "keys", "--server-batches", tmp_path / "kept")
    a, b, c = (Batches(server, f"key-{key}") for key in "abc")
    batch = a.begin([line(0), line(1)])
    found = a.wait(batch)
    assert b.outputs(found).keys() == names(2)  # the same name is the same owner
    for path in (f"files/{found['output_file_id']}", f"files/{found['output_file_id']}/content", f"batches/{batch}"):
        assert b.ask("GET", f"/v1/{path}").status == 200 and c.ask("GET", f"/v1/{path}").status == 404
    assert c.ask("DELETE", f"/v1/files/{found['input_file_id']}").status == 404 and c.ask("POST", f"/v1/batches/{batch}/cancel").status == 404
    assert c.create(found["input_file_id"]).status == 404
    assert len(b.ask("GET", "/v1/files").json()["data"]) == 2 and c.ask("GET", "/v1/files").json()["data"] == []


def steady(content):
    """Lines without what is made anew for every batch."""
    return [{k: v for k, v in json.loads(text).items() if k != "id"} | {"response": json.loads(text)["response"] | {"request_id": ""}}
            for text in content.splitlines()]


def test_kill_at_any_moment(start, tmp_path):
    """Killed again and again, and files as a crash may leave them: the answers are those of a run that nothing ended."""
    count, most = (3000, 60) if "FLETCH_TEST_FULL" in os.environ else (150, 3)
    seed = int(os.environ.get("FLETCH_TEST_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    print("FLETCH_TEST_SEED =", seed)
    flags = ("--server-batches", tmp_path / "kept")
    batches = Batches(start(*flags))
    file = batches.upload("\n".join(line(i) for i in range(count)).encode())
    whole = batches.wait(batches.create(file).json()["id"])
    want = [steady(batches.content(whole[key])) for key in ("output_file_id", "error_file_id")]
    batch, kills, seen = batches.create(file).json()["id"], 0, 0
    other = batches.create(file).json()["id"]  # both go on
    while batches.get(batch)["status"] not in OVER and kills < most:
        time.sleep(chance.random() * 0.3)
        batches.server.kill()
        kills += 1
        record = json.loads((tmp_path / "kept" / f"{batch}.json").read_text())
        done = record["request_counts"]["completed"] + record["request_counts"]["failed"]
        assert done >= seen  # what was recorded is not done again
        seen = 0 if wound(tmp_path / "kept", record, chance) else done
        batches = Batches(start(*flags))
    for name in (batch, other):
        found = batches.wait(name)
        assert found["status"] == "completed" and found["request_counts"] == whole["request_counts"] and found["usage"] == whole["usage"]
        assert batches.outputs(found).keys() == names(count)
        assert [steady(batches.content(found[key])) for key in ("output_file_id", "error_file_id")] == want
    left = sorted(p.name.split(".")[0] for p in (tmp_path / "kept").iterdir() if p.name.startswith("file-"))
    assert left == sorted(f["id"] for f in batches.ask("GET", "/v1/files").json()["data"] for _ in range(2))


def wound(folder, record, chance):
    """What a crash of the machine may leave beyond what a record speaks of; or (True) a file that lost what it spoke of."""
    lost = False
    output = folder / f"{record['kept']['output']}.jsonl"
    if record["status"] == "in_progress" and output.exists():
        if chance.random() < 0.5:
            with open(output, "ab") as file:
                file.write(b'{"id":"batch_req_torn')
        elif chance.random() < 0.2:
            output.write_bytes(output.read_bytes()[: record["kept"]["output_bytes"] // 2])
            lost = True
    (folder / "file-orphan.jsonl").write_bytes(b"bytes without a record")
    return lost


def test_killed_at_the_end(start, tmp_path):
    """Between the files and the status: the record of an output is there already, or its batch's says in_progress."""
    flags = ("--server-batches", tmp_path / "kept")
    batches = Batches(start(*flags))
    found = {at: batches.wait(batches.begin([line(i) for i in range(20)])) for at in ("finalizing", "in_progress")}
    before = {at: batches.outputs(batch) for at, batch in found.items()}
    batches.server.kill()
    for at, batch in found.items():
        path = tmp_path / "kept" / f"{batch['id']}.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"status": at, "completed_at": None, "output_file_id": None, "error_file_id": None}))
    (tmp_path / "kept" / f"{batch['error_file_id']}.json").unlink()
    batches = Batches(start(*flags))
    for at, batch in found.items():
        again = batches.wait(batch["id"])
        assert batches.outputs(again) == before[at] and again["output_file_id"] == batch["output_file_id"]
    assert len(batches.ask("GET", "/v1/files").json()["data"]) == 6


def test_expired_in_the_middle(start, tmp_path):
    """What ran in time keeps its answer, the others are told, also where the server was away meanwhile: its record is set
    back to the tenth line of a day that has passed."""
    flags, kept, lines = ("--server-batches", tmp_path / "kept"), tmp_path / "kept", [line(i) for i in range(20)]
    batches = Batches(start(*flags))
    found = batches.wait(batches.begin(lines))
    before = batches.outputs(found)
    batches.server.kill()
    path, files = kept / f"{found['id']}.json", [found["output_file_id"], found["error_file_id"]]
    record, counts = json.loads(path.read_text()), [8, 2]  # lines 3 and 7 of the first ten are refused
    sizes = [sum(map(len, (kept / f"{file}.jsonl").read_bytes().splitlines(True)[:count])) for file, count in zip(files, counts)]
    record |= {"status": "in_progress", "expires_at": 1, "output_file_id": None, "error_file_id": None}
    record["request_counts"] |= {"completed": counts[0], "failed": counts[1]}
    record["kept"] |= {"line": 10, "at": len("\n".join(lines[:10]).encode()) + 1, "output_bytes": sizes[0], "error_bytes": sizes[1]}
    path.write_text(json.dumps(record))
    for file in files:
        (kept / f"{file}.json").unlink()
    batches = Batches(start(*flags))
    done = batches.wait(found["id"])
    assert done["status"] == "expired" and done["expired_at"] and done["completed_at"] == found["completed_at"]
    assert done["request_counts"] == {"total": 20, "completed": 8, "failed": 12}
    rows = batches.outputs(done)
    assert rows.keys() == names(20)
    for i, text in enumerate(lines):
        whole, row = rows[json.loads(text)["custom_id"]]
        if i < 10:
            assert whole == before[row["custom_id"]][0]
        else:
            assert row["response"] is None and row["error"]["code"] == "batch_expired"


def modelless(count):
    """Lines for an engine that computes nothing, whatever it is called."""
    return [json.dumps(json.loads(line(i)) | {"body": {"input": f"{i} " * 20}}) for i in range(count)]


def test_a_batch_holds_up_nothing(faulty, tmp_path):
    """A batch that is under way holds up neither a request nor SIGTERM, and goes on at the next start."""
    server = faulty("--server-batches", tmp_path / "kept", model=False)
    batches = Batches(server)
    server.hold()
    batch = batches.begin(modelless(600))
    batches.wait(batch, ("in_progress",))
    file = batches.get(batch)["input_file_id"]
    assert batches.ask("DELETE", f"/v1/files/{file}").status == 409  # it is read
    assert batches.get(batch)["status"] == "in_progress"
    server.let_go()
    for i in range(3):
        assert server.ask("POST", "/v1/embeddings", json.dumps({"input": f"now {i}"}).encode()).status == 200
    assert server.end() == 0
    server = faulty("--server-batches", tmp_path / "kept", model=False)
    batches = Batches(server)
    found = batches.wait(batch)
    assert found["status"] == "completed" and batches.outputs(found).keys() == names(600)
    assert batches.ask("POST", f"/v1/batches/{batch}/cancel").status == 409


def test_who_is_told_to_come_again_comes_again(faulty, tmp_path):
    """A queue in which next to nothing may wait turns requests away, but loses none of a batch."""
    server = faulty("--server-batches", tmp_path / "kept", "--server-max-queue-tokens", "8", model=False)
    batches = Batches(server)
    server.hold()
    batch = batches.begin(modelless(30))
    server.wait_of_model("queue_rejected_total", lambda refused: refused > 0)
    server.let_go()
    found = batches.wait(batch)
    assert found["status"] == "completed" and found["request_counts"] == {"total": 30, "completed": 30, "failed": 0}
    assert batches.outputs(found).keys() == names(30)


@pytest.mark.skipif(serving.WINE, reason="a limit of Linux for files, which wine reports as another error")
def test_a_full_disk(start, tmp_path):
    """A turn that fails for want of room is done again when there is some; nothing of it is lost or doubled."""
    kept = tmp_path / "kept"
    server = start("--server-batches", kept)
    batches = Batches(server)
    file = batches.upload("\n".join(line(i) for i in range(50)).encode())
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100000, resource.RLIM_INFINITY))
    batch = batches.create(file).json()["id"]
    server.wait_event(lambda event: "cannot continue for now" in event["msg"])
    assert batches.get(batch)["status"] == "in_progress" and batches.get(batch)["request_counts"]["completed"] == 0
    big = batches.ask("POST", "/v1/files", form(b"x" * 200000), content_type="multipart/form-data; boundary=x7")
    assert big.status in (500, 507) and len(list(kept.glob("*.tmp"))) == 0
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    batches.begin([line(0)])  # which wakes it
    found = batches.wait(batch)
    assert found["status"] == "completed" and batches.outputs(found).keys() == names(50)
