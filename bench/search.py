# SPDX-License-Identifier: Apache-2.0
"""search.py - how well Cranfield's 225 questions are answered by each way to keep and search its 1,400 abstracts.

Starts a server for each way to keep them, asks /search in each way to search, and prints nDCG@10 of the documents. Late
chunks come from fletch_embed_spans of build/libfletch.so, since the store makes plain ones.

    python bench/search.py --model FOLDER [--reranker FOLDER] [--data FOLDER] [--size 64] [--build build]
"""
import argparse
import ctypes
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy

import peers

HERE = pathlib.Path(__file__).resolve().parent
TOP = 10
BATCH = 100  # documents of one /add


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Cranfield:
    def __init__(self, folder):
        self.documents = [document for document in lines(folder / "cranfield-docs.jsonl") if document["text"]]
        self.queries = lines(folder / "cranfield-queries.jsonl")
        self.gains = {}
        for line in (folder / "cranfield-qrels.tsv").read_text().splitlines():
            query, document, gain = line.split()
            self.gains.setdefault(query, {})[document] = float(gain)

    def ndcg(self, found):
        """Mean nDCG@10 x 100 of lists of document ids, one for each query."""
        weights, values = 1 / numpy.log2(numpy.arange(2, TOP + 2)), []
        for query, ids in zip(self.queries, found):
            gain = self.gains.get(query["id"])
            if gain:
                best = sorted(gain.values(), reverse=True)[:TOP]
                values.append(sum(gain.get(name, 0) * weight for name, weight in zip(ids, weights)) / (numpy.array(best) @ weights[:len(best)]))
        return 100 * float(numpy.mean(values))


class Server:
    """One that keeps its store in memory."""

    def __init__(self, program, models):
        self.folder = tempfile.TemporaryDirectory()
        flags = [word for model in models for word in ("--model", model)]
        self.process = subprocess.Popen([program, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        cwd=self.folder.name, env={**os.environ, "FLETCH_SERVER_DEADLINE_MS": "600000"}, text=True)
        port = None
        for line in self.process.stdout:
            found = re.search(r"listening on http://.*:(\d+)$", line.strip())
            port = int(found[1]) if found else port
            if line.startswith("ready:"):
                break
        self.client = http.client.HTTPConnection("127.0.0.1", port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def ask(self, path, **body):
        self.client.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = self.client.getresponse()
        text = reply.read()
        if reply.status != 200:
            sys.exit(f"{path}: {reply.status} {text.decode()}")
        return json.loads(text)

    def add(self, documents, **how):
        chunks = 0
        for at in range(0, len(documents), BATCH):
            some = documents[at:at + BATCH]
            chunks += self.ask("/add", texts=[d["text"] for d in some], ids=[d["id"] for d in some],
                               metadata=[{"title": d["title"]} for d in some], **how)["count"]
        return chunks

    def search(self, queries, **how):
        return [[hit["id"] for hit in self.ask("/search", text=query["text"], k=TOP, group_by="document", group_size=1, **how)["results"]]
                for query in queries]


# ---- Late chunks, through the library ----------------------------------------------------------------------

class ChunkOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("by", ctypes.c_int), ("max_tokens", ctypes.c_uint32), ("overlap", ctypes.c_uint32),
                ("stop", ctypes.c_void_p), ("stop_user", ctypes.c_void_p)]


class Chunks(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("offsets", ctypes.POINTER(ctypes.c_size_t)), ("chars", ctypes.POINTER(ctypes.c_size_t)),
                ("tokens", ctypes.POINTER(ctypes.c_uint32))]


class Library(peers.Fletch):
    """The library, with what cuts documents."""

    def spans(self, text: str, size: int) -> list[tuple[int, int]]:
        """[begin, end) of each chunk, without those that are white space."""
        raw, chunks = text.encode(), ctypes.POINTER(Chunks)()
        options = ChunkOptions(size=ctypes.sizeof(ChunkOptions), max_tokens=size)
        self.check(self.library.fletch_chunk(self.model, raw, ctypes.c_size_t(len(raw)), ctypes.byref(options), ctypes.byref(chunks),
                                             ctypes.byref(self.error)))
        found = [tuple(chunks.contents.offsets[2 * i:2 * i + 2]) for i in range(chunks.contents.count)]
        self.library.fletch_chunks_free(chunks)
        return found

    def late(self, texts: list[str], spans: list) -> numpy.ndarray:
        flat = [place for each in spans for span in each for place in span]
        places, counts = (ctypes.c_size_t * len(flat))(*flat), (ctypes.c_size_t * len(spans))(*map(len, spans))
        (given, _kept), (rows, out) = self.texts(texts), self.rows(len(flat) // 2)
        self.check(self.library.fletch_embed_spans(self.model, ctypes.byref(given), places, counts, None, ctypes.byref(out),
                                                   ctypes.byref(self.error)))
        return rows


def late_chunks(options, data):
    os.environ["BENCH_LIBRARY"] = str((options.build / "libfletch.so").resolve())
    library = Library(str(options.model))
    texts = [document["text"] for document in data.documents]
    spans = [library.spans(text, options.size) for text in texts]
    rows = library.late(texts, spans)
    of = numpy.repeat(numpy.arange(len(texts)), [len(each) for each in spans])
    found = []
    for scores in library.embed([query["text"] for query in data.queries]) @ rows.T:
        best = numpy.full(len(texts), -2, numpy.float32)
        numpy.maximum.at(best, of, scores)
        found.append([data.documents[i]["id"] for i in numpy.argsort(-best, kind="stable")[:TOP]])
    return data.ndcg(found), len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--reranker", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA", HERE.parent.parent / "shared/data"))
    parser.add_argument("--size", type=int, default=64, help="tokens of a chunk")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    options = parser.parse_args()
    data = Cranfield(pathlib.Path(options.data))
    models = [model.resolve() for model in (options.model, options.reranker) if model]
    ways = [("vectors", {}), ("hybrid", {"hybrid": True})]
    if options.reranker:
        ways += [("reranked", {"rerank": True}), ("hybrid, reranked", {"hybrid": True, "rerank": True})]
    cut = {"chunk": {"size": options.size}}
    kept = [("whole, cut at the model's length", {}), (f"chunks of {options.size} tokens", cut),
            ("the same, title in front", {**cut, "context": "{title}\n{chunk}"})]
    print("| kept | items | " + " | ".join(name for name, _ in ways) + " |\n|---|" + "---|" * (len(ways) + 1))
    for name, how in kept:
        with Server((options.build / "fletch").resolve(), models) as server:
            count = server.add(data.documents, **how)
            scores = [data.ndcg(server.search(data.queries, **search)) for _, search in ways]
        print(f"| {name} | {count:,} | " + " | ".join(f"{score:.2f}" for score in scores) + " |", flush=True)
    score, count = late_chunks(options, data)
    print(f"| late chunks of {options.size} tokens | {count:,} | {score:.2f}" + " | " * (len(ways) - 1) + " |")


if __name__ == "__main__":
    main()
