# SPDX-License-Identifier: Apache-2.0
"""The playground page in headless Chromium: it shows what the server says, and lets nothing in from outside.

FLETCH_SCREENSHOT=docs/images/playground.png keeps a picture of it.
"""
import base64
import hashlib
import http.server
import json
import os
import pathlib
import re
import threading

import browser
import pytest
import serving

HTML = {"accept": "text/html,application/xhtml+xml"}
TEXTS = ["A cat sleeps.", "A kitten is napping.", "Shares fell."]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    running = browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield running
    running.close()


@pytest.fixture
def page(server, chromium):
    """The playground, as wide as it was before once the test is through."""
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    yield chromium
    chromium.call("Emulation.clearDeviceMetricsOverride")
    chromium.call("Emulation.setEmulatedMedia", features=[])


def write(page, texts):
    page.run(f"document.getElementById('texts').value = {json.dumps(chr(10).join(texts))}")


def compare(page):
    page.run("document.getElementById('map').replaceChildren(); document.getElementById('go').click()")
    page.wait("!!document.querySelector('#map td, #status.bad')")


def cells(page):
    return page.run("[...document.querySelectorAll('#map tbody tr')].map(r => [...r.cells].slice(1).map(c => c.title))")


@pytest.mark.parametrize("path, source", [("/", "playground.html"), ("/docs", "docs.html")])
def test_policy_allows_this_page_and_nothing_else(server, path, source):
    reply = server.ask("GET", path, headers=HTML)
    page, policy = reply.body.decode(), reply.headers["content-security-policy"]
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    for kind in ("style", "script"):
        inside = re.search(f"<{kind}>(.*?)</{kind}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page) and "innerHTML" not in page
    assert page == pathlib.Path(serving.ROOT, "src/server", source).read_text()
    assert len(page) < 50000


def test_who_is_no_browser_gets_a_line(server):
    reply = server.ask("GET", "/", headers={"accept": "*/*"})
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/plain")
    assert server.ask("POST", "/").status == 200  # stays what text-embeddings-inference has there


def test_the_map_shows_the_cosines_of_the_server(server, chromium):
    home = f"http://{server.where[0]}:{server.port}/"
    chromium.open(home)
    write(chromium, TEXTS)
    compare(chromium)
    rows = server.ask(body=json.dumps({"inputs": TEXTS}).encode()).json()
    shown = cells(chromium)
    for i, row in enumerate(rows):
        for k, other in enumerate(rows):
            truth = sum(a * b for a, b in zip(row, other))
            assert shown[i][k].startswith(f"{i + 1} and {k + 1}: ")
            assert abs(float(shown[i][k].split()[-1]) - truth) < 2e-5
    times = chromium.run("document.getElementById('times').innerText")
    assert re.search(r"in the server\s+\d+ ms", times) and re.search(r"numbers a vector\s+384", times)
    assert chromium.complaints() == []
    assert all(url.startswith((home, "data:")) for url in chromium.requested())


def test_docs_lists_every_route(server, chromium):
    home = f"http://{server.where[0]}:{server.port}"
    chromium.open(home + "/docs")
    chromium.wait("document.querySelectorAll('details').length > 0")
    document = server.ask("GET", "/openapi.json").json()
    listed = chromium.run("[...document.querySelectorAll('summary')].map(s => s.innerText.split(/\\s+/).slice(0, 2).join(' '))")
    assert sorted(listed) == sorted(f"{m.upper()} {path}" for path, methods in document["paths"].items() for m in methods)
    chromium.run("document.getElementById('post_add').open = true")
    shown = chromium.run("document.getElementById('post_add').innerText")
    fields = document["paths"]["/add"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    for name, field in fields.items():
        assert name in shown and field["description"] in shown
    assert f"curl {home}/add" in shown and "undefined" not in chromium.run("document.body.innerText")
    assert chromium.run("document.documentElement.scrollWidth <= innerWidth")
    assert chromium.complaints() == [] and all(url.startswith((home, "data:")) for url in chromium.requested())


def press(page, button):
    """Press it and wait until it can be pressed again; what is said then."""
    page.run(f"document.getElementById('{button}').click()")
    page.wait(f"!document.getElementById('{button}').disabled")
    return page.run("document.getElementById('status').innerText")


def test_add_and_search(server, page):
    server.ask("DELETE", "/items")
    page.open(f"http://{server.where[0]}:{server.port}/")
    page.wait("document.getElementById('store').innerText.startsWith('0 texts in the store, which is gone')")
    assert press(page, "seek") == "Nothing is stored yet: add texts first."
    write(page, TEXTS + ["<b>bold</b>"])
    assert press(page, "add") == "Added 4 texts."
    page.run("document.getElementById('query').value = 'a kitten has a nap'")
    assert press(page, "seek") == ""
    truth = server.ask("POST", "/search", b'{"text": "a kitten has a nap"}').json()["results"]
    assert len(truth) == 4 and truth[0]["text"] == TEXTS[1]
    shown = page.run("[...document.querySelectorAll('#found li')].map(li => [...li.children].map(c => c.innerText))")
    assert shown == [[f"{hit['score']:.3f}", hit["text"]] for hit in truth]
    assert "/search" in page.run("document.getElementById('curl').innerText")
    assert page.run("document.getElementById('store').innerText").startswith("4 texts")
    assert page.complaints() == []


def test_a_server_that_keeps_nothing(start, chromium):
    server = start("--server-store", "none")
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    chromium.wait("document.getElementById('search').hidden && document.getElementById('add').hidden")
    compare(chromium)
    assert len(cells(chromium)) == 7


def test_copy(page):
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.call("Emulation.setFocusEmulationEnabled", enabled=True)
    compare(page)
    page.run("document.getElementById('copy').click()")
    page.wait("document.getElementById('copy').innerText === 'Copied'")
    text = page.run("document.getElementById('curl').textContent")
    assert page.run("navigator.clipboard.readText()") == text and text.startswith("curl http://")
    compare(page)
    assert page.run("document.getElementById('copy').innerText") == "Copy", "another command is not copied yet"


# The least contrast of all texts that can be seen, and its text.
CONTRAST = """(() => {
  const parts = c => (c.match(/[0-9.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) { return c; } } return [255, 255, 255]; };
  let least = [99, ""], seen = 0;
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join("").trim() || e.value;
    if (!text || !e.offsetParent || ["SCRIPT", "STYLE", "OPTION"].includes(e.tagName)) { continue; }
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    seen++;
    if (ratio < least[0]) { least = [ratio, text]; }
  }
  return [...least, seen];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(server, page, scheme):
    """Every text stands out from what is behind it at 4.5 to 1, whatever the colour of its cell."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    write(page, TEXTS)
    press(page, "add")
    press(page, "seek")
    compare(page)
    least, text, seen = page.run(CONTRAST)
    assert seen > 20 and least >= 4.5, (least, text)
    for value in range(0, 101, 2):  # every colour that a cell can have
        page.run(f"colour(document.querySelector('#map td'), {value / 100})")
        assert page.run(CONTRAST)[0] >= 4.5, value
    page.open(f"http://{server.where[0]}:{server.port}/docs")
    page.wait("document.querySelectorAll('details').length > 20")
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    least, text, seen = page.run(CONTRAST)
    assert seen > 100 and least >= 4.5, (least, text)


@pytest.mark.parametrize("texts", [7, 12, 45])
def test_a_phone_shows_every_column(page, texts):
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    write(page, [f"line {i}" for i in range(texts)])
    compare(page)
    assert page.run("document.querySelectorAll('#map tbody tr').length") == texts
    assert page.run("[...document.querySelectorAll('#map tr:last-child td')].every(c => c.getBoundingClientRect().right <= 360)")
    assert page.run("document.documentElement.scrollWidth") == 360
    if texts <= 12:
        assert page.run("[...document.querySelectorAll('#map td')].every(c => c.scrollWidth <= c.clientWidth + 1 && c.innerText)")
    assert page.run("document.getElementById('legend').innerText").splitlines()[-1] == f"line {texts - 1}"
    page.run("document.querySelector('#map tr:last-child td').click()")
    assert page.run("document.getElementById('pair').innerText").startswith(f"{texts} and 1: ")


LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"


@pytest.mark.parametrize("width", [360, 1280])
def test_long_words_and_negative_scores_stay_in_their_place(server, page, width):
    server.ask("DELETE", "/items")
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=width < 1000)
    write(page, ["A cat sleeps on the warm windowsill.", "How do I reset my password?", LONG, "x" * 300])
    for button in ("go", "add", "seek"):
        page.run("document.getElementById('query').value = 'quantum chromodynamics'")
        press(page, button)
        assert page.run("document.documentElement.scrollWidth") <= width, button
    scores = "[...document.querySelectorAll('#found b')]"
    assert any(text.startswith("-") for text in page.run(scores + ".map(b => b.innerText)"))
    line = page.run("parseFloat(getComputedStyle(document.body).lineHeight)")
    assert page.run(scores + ".map(b => { const r = document.createRange(); r.selectNodeContents(b); "
                    "return r.getBoundingClientRect().height; })") == pytest.approx([line] * 4, abs=line / 2)


def test_one_question_at_a_time(server, page):
    """A search takes the map of an older comparison away, and a comparison what was found; a line is kept once."""
    server.ask("DELETE", "/items")
    write(page, [*TEXTS, TEXTS[0], "long " * 200, "a\ttab"])
    compare(page)
    for _ in range(2):
        assert press(page, "add") == "Added 5 texts."
        assert page.run("document.getElementById('store').innerText").startswith("5 texts")
    assert visible(page, "result")
    press(page, "seek")
    assert visible(page, "hits") and not visible(page, "result")
    assert len({text for _, text in found(page)}) == len(found(page)) == 5
    compare(page)
    assert visible(page, "result") and not visible(page, "hits")


def test_what_is_not_needed_is_not_in_the_way(page):
    page.wait("!document.getElementById('hint').hidden")
    assert not visible(page, "key")
    box = page.run("['seek', 'hint'].map(id => document.getElementById(id).getBoundingClientRect()).map(b => [b.top, b.bottom])")
    assert box[1][0] - box[0][1] >= 8


def test_no_line_is_dropped_in_silence(page):
    write(page, [f"line {i}" for i in range(101)])
    compare(page)
    assert page.run("document.getElementById('status').innerText") == "The first 100 of 101 lines are compared."
    assert page.run("document.querySelectorAll('#map tbody tr').length") == 100
    write(page, ["one"] * 100)
    compare(page)
    assert page.run("document.getElementById('status').innerText") == ""


def test_a_text_is_never_markup(server, chromium):
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    write(chromium, ["<img src=x onerror='window.hit=1'>", "</script><script>window.hit=1</script>"])
    compare(chromium)
    assert chromium.run("window.hit === undefined && document.querySelectorAll('#result img, #result script').length === 0")
    assert "<img src=x" in chromium.run("document.getElementById('map').innerText")


def test_light_and_dark(start, chromium):
    server = start("--server-models", f"all-MiniLM-L6-v2={serving.MODEL}")
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    compare(chromium)
    seen = set()
    for scheme in ("light", "dark"):
        chromium.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        chromium.wait(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        seen.add(chromium.run("getComputedStyle(document.body).backgroundColor + document.querySelector('#map td').style.color"
                              " + document.querySelector('#map tr:last-child td').style.background"))
        if scheme == "light" and os.environ.get("FLETCH_SCREENSHOT"):
            pathlib.Path(os.environ["FLETCH_SCREENSHOT"]).write_bytes(chromium.screenshot())
    assert len(seen) == 2
    assert chromium.screenshot()[:4] == b"\x89PNG"


def test_with_an_api_key(start, chromium, tmp_path):
    (tmp_path / "keys").write_text("secret-key-1\n")
    (tmp_path / "keys").chmod(0o600)
    guarded = start("--server-api-key-file", tmp_path / "keys")
    chromium.open(f"http://{guarded.where[0]}:{guarded.port}/")
    chromium.wait("document.getElementById('status').innerText.includes('API key')")
    assert visible(chromium, "key")
    compare(chromium)
    assert chromium.run("document.getElementById('status').innerText").startswith("401")
    chromium.run("document.getElementById('key').value = 'secret-key-1'")
    compare(chromium)
    assert len(cells(chromium)) == 7
    assert "secret" not in chromium.run("document.getElementById('curl').innerText + location.href")
    assert chromium.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0


# ---- Pages of other origins ------------------------------------------------------------------------------------------

PAGE = b"<!doctype html><title>elsewhere</title>"
ASK = """(async () => {
  try {
    const reply = await fetch(%s, {method: 'POST', headers: {'Authorization': 'Bearer secret-key-1',
      'Content-Type': 'application/json', 'x-fletch-dtype': 'int8', 'x-request-id': 'from-a-page'}, body: '{"inputs":"a"}'});
    return {status: reply.status, body: await reply.json(), fingerprint: reply.headers.get('x-fletch-fingerprint'),
      id: reply.headers.get('x-request-id'), tokens: reply.headers.get('x-compute-tokens')};
  } catch (error) { return {error: String(error)}; }
})()"""


@pytest.fixture
def elsewhere():
    """A page of another origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()


@pytest.mark.parametrize("setting", ["*", "the page's", "http://other.example"])
def test_a_page_of_another_origin_with_a_key(start, chromium, elsewhere, tmp_path, setting):
    """Preflight, Authorization, own headers sent and read: what a browser asks for and what it keeps from the page."""
    (tmp_path / "keys").write_text("secret-key-1\n")
    origin = elsewhere if setting == "the page's" else setting
    guarded = start("--server-api-key-file", tmp_path / "keys", "--server-cors-origin", origin)
    chromium.open(elsewhere + "/")
    where = json.dumps(f"http://127.0.0.1:{guarded.port}/embed")
    got = chromium.run(ASK % where)
    if setting == "http://other.example":
        assert "error" in got, "the browser must keep it from the page"
        assert not [e for e in guarded.events() if e.get("status") == 200], "and the request itself was never sent"
        return
    assert got["status"] == 200 and len(got["body"][0]) == 384 and all(type(x) is int for x in got["body"][0])
    info = json.loads(guarded.ask("GET", "/info", headers={"authorization": "Bearer secret-key-1"}).body)
    assert got["fingerprint"] == info["model_fingerprint"] and got["id"] == "from-a-page" and int(got["tokens"]) == 3
    refused = chromium.run(ASK.replace("secret-key-1", "wrong").replace("await reply.json()", "await reply.text()") % where)
    assert refused["status"] == 401, "a page can read why it is refused"
    assert guarded.wait_event(lambda event: event.get("method") == "OPTIONS")["status"] == 204


def found(page):
    return page.run("[...document.querySelectorAll('#found li')].map(li => [...li.children].map(c => c.innerText))")


def visible(page, name):
    return page.run(f"!!document.getElementById('{name}').offsetParent")


@pytest.mark.parametrize("folder", ["scores/bert", "late/bert"])
def test_what_is_found_is_reranked(start, chromium, folder):
    """By a cross-encoder, and by late interaction: what is shown is what the two routes say, in the second one's order, and
    where it stood in the first one's."""
    server = start("--model", f"near={serving.MODEL}", "--model", f"rank={serving.ROOT}/tests/golden/{folder}", model=False)
    texts = ["the cat sat on the mat", "rain at sea", "a ship ran", *[f"the cat ran {i} times" for i in range(12)]]
    server.ask("POST", "/add", json.dumps({"texts": texts}).encode())
    chromium.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    chromium.wait("document.getElementById('store').innerText.startsWith('15 texts')")
    assert visible(chromium, "rerank") and not visible(chromium, "hint") and not visible(chromium, "models")
    chromium.run("document.getElementById('query').value = 'the cat'")
    assert press(chromium, "seek") == ""
    hits = server.ask("POST", "/search", b'{"text": "the cat", "k": 50}').json()["results"]
    body = {"model": "rank", "query": "the cat", "texts": [hit["text"] for hit in hits]}
    ranked = server.ask("POST", "/rerank", json.dumps(body).encode()).json()
    want = [[f"{row['score']:.3f}", hits[row["index"]]["text"]] for row in ranked[:10]]
    shown = found(chromium)
    assert [[score, text.split("\n")[0]] for score, text in shown] == want
    for i, (row, (_, text)) in enumerate(zip(ranked, shown)):
        assert (f"was {row['index'] + 1}" in text) == (row["index"] != i)
    stages = chromium.run("document.getElementById('stages').innerText")
    assert re.fullmatch(r"Found by vectors, read by rank, in [\d.]+ ms\.", stages)
    assert '"rerank_model":"rank"' in chromium.run("document.getElementById('curl').innerText")
    assert chromium.run("document.documentElement.scrollWidth") == 360
    for scheme in ("light", "dark"):
        chromium.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert chromium.run(CONTRAST)[0] >= 4.5
    chromium.run("document.getElementById('rerank').value = ''")
    assert press(chromium, "seek") == ""
    assert found(chromium) == [[f"{hit['score']:.3f}", hit["text"]] for hit in hits[:10]]
    assert chromium.complaints() == []
    chromium.call("Emulation.clearDeviceMetricsOverride")
    chromium.call("Emulation.setEmulatedMedia", features=[])


STORY = "The ferry to the island leaves at noon. " * 40 + "Dogs travel free of charge. " + "Tickets are sold on the quay. " * 40


@pytest.mark.parametrize("width", [360, 1280])
def test_documents_show_their_passages(server, page, width):
    server.ask("DELETE", "/items")
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=width < 1000)
    page.open(f"http://{server.where[0]}:{server.port}/")
    page.wait("document.getElementById('store').innerText.startsWith('0 texts')")
    page.run("document.getElementById('whole').checked = true")
    write(page, [STORY, "<b>Cats</b> stay at home."])
    chunks = re.fullmatch(r"Added a document in (\d+) chunks\.", press(page, "add"))
    assert chunks and int(chunks[1]) == server.ask("GET", "/items").json()["count"] > 2
    page.run("document.getElementById('whole').checked = false")
    write(page, ["A puppy may come along.", "Rain."])
    assert press(page, "add") == "Added 2 texts."
    for hybrid in ("false", "true"):
        page.run(f"document.getElementById('hybrid').checked = {hybrid}; document.getElementById('query').value = 'may I bring my puppy'")
        assert press(page, "seek") == ""
        body = {"text": "may I bring my puppy", "hybrid": hybrid == "true", "group_by": "document", "highlight": "passage"}
        truth = server.ask("POST", "/search", json.dumps(body).encode()).json()["results"]
        shown = found(page)
        assert len(truth) == 3 and [score for score, _ in shown] == [f"{hit['score']:.3f}" for hit in truth]
        at = next(i for i, hit in enumerate(truth) if len(hit["chunks"]) > 1)
        marks = page.run(f"[...document.querySelectorAll('#found li')[{at}].querySelectorAll('mark')].map(m => m.innerText)")
        assert len(marks) == 3 and sum("Dogs travel free" in mark for mark in marks) == 1
        for chunk, mark in zip(truth[at]["chunks"], marks):
            assert chunk["passage"]["text"].split() == mark.split() and f"characters {chunk['chars'][0]} to" in shown[at][1]
        assert ("words" in page.run("document.getElementById('stages').innerText")) == (hybrid == "true")
        assert page.run("document.documentElement.scrollWidth") <= width and page.run("document.querySelectorAll('#found li b').length") == 3
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert page.run(CONTRAST)[0] >= 4.5
        if os.environ.get("FLETCH_SCREENSHOTS"):
            pathlib.Path(os.environ["FLETCH_SCREENSHOTS"], f"found-{width}-{scheme}.png").write_bytes(page.screenshot())
    assert page.complaints() == []


def test_without_a_reranker_the_page_says_how_to_have_one(page):
    page.wait("!document.getElementById('hint').hidden")
    assert not visible(page, "rerank")
    assert "--model cross-encoder/ms-marco-MiniLM-L6-v2" in page.run("document.getElementById('hint').innerText")


def test_a_reranker_alone_ranks_the_lines(start, chromium):
    server = start("--model", f"rank={serving.ROOT}/tests/golden/scores/bert", model=False)
    chromium.open(f"http://{server.where[0]}:{server.port}/")
    chromium.wait("document.getElementById('seek').innerText === 'Rank'")
    for name, shown in {"go": False, "add": False, "store": False, "hint": False, "rerank": False, "query": True}.items():
        assert visible(chromium, name) == shown, name
    texts = ["a mat", "the cat sat", "rain"]
    write(chromium, texts)
    chromium.run("document.getElementById('query').value = 'the cat'")
    assert press(chromium, "seek") == ""
    ranked = server.ask("POST", "/rerank", json.dumps({"query": "the cat", "texts": texts}).encode()).json()
    assert found(chromium) == [[f"{row['score']:.3f}", texts[row["index"]]] for row in ranked]
    assert chromium.complaints() == []
