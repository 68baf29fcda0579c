# SPDX-License-Identifier: Apache-2.0
"""search.py - how well Cranfield's 225 questions are answered by each way to keep and search its 1,400 abstracts.

Starts a server for each way to keep them, asks /search in each way to search, and prints nDCG@10 of the documents. Late
chunks come from the Python package in build/python, since the store makes plain ones.

    python bench/search.py --model FOLDER [--reranker FOLDER] [--data FOLDER] [--size 64]
"""
import json
import os
import pathlib
import sys
import tempfile

import numpy

import report
import texts as text_sets
from harness import ROOT, arguments

sys.path += [str(ROOT / "tests/server"), str(ROOT / "build/python")]
import serving  # noqa: E402

TOP = 10
BATCH = 100  # documents of one /add


class Server(serving.Server):
    """One that keeps its store in memory."""

    def post(self, path, **body):
        reply = self.ask(path=path, body=json.dumps(body).encode())
        if reply.status != 200:
            sys.exit(f"{path}: {reply.status} {reply.body.decode()}")
        return reply.json()

    def add(self, documents, **how):
        chunks = 0
        for at in range(0, len(documents), BATCH):
            some = documents[at:at + BATCH]
            chunks += self.post("/add", texts=[d["text"] for d in some], ids=[d["id"] for d in some],
                                metadata=[{"title": d["title"]} for d in some], **how)["count"]
        return chunks

    def search(self, queries, **how):
        return [[hit["id"] for hit in self.post("/search", text=query["text"], k=TOP, group_by="document", group_size=1, **how)["results"]]
                for query in queries]


def late_chunks(options, cranfield, documents):
    import fletch
    model = fletch.Model(options.model)
    found = model.embed_chunks([document["text"] for document in documents], size=options.size, late=True)
    rows, of = numpy.concatenate([each.vectors for each in found]), numpy.repeat(numpy.arange(len(found)), [len(each.vectors) for each in found])
    ranked = []
    for scores in model.embed([query["text"] for query in cranfield.queries]) @ rows.T:
        best = numpy.full(len(found), -2, numpy.float32)
        numpy.maximum.at(best, of, scores)
        ranked.append([documents[i]["id"] for i in numpy.argsort(-best, kind="stable")[:TOP]])
    return cranfield.ndcg(ranked), len(rows)


def main():
    parser = arguments(__doc__, "model", "data", "build", size=64)
    parser.add_argument("--reranker", type=os.path.abspath)
    options = parser.parse_args()
    cranfield = text_sets.Cranfield(options.data)
    documents = [document for document in cranfield.documents if document["text"]]
    models = [word for model in (options.model, options.reranker) if model for word in ("--model", model)]
    ways = {"vectors": {}, "hybrid": {"hybrid": True}}
    if options.reranker:
        ways |= {"reranked": {"rerank": True}, "hybrid, reranked": {"hybrid": True, "rerank": True}}
    cut, rows = {"chunk": {"size": options.size}}, []
    Server.PROGRAM = str((options.build / "fletch").resolve())
    for name, how in (("whole, cut at the model's length", {}), (f"chunks of {options.size} tokens", cut),
                      ("the same, title in front", {**cut, "context": "{title}\n{chunk}"})):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(pathlib.Path(folder), *models, model=False)
            count = server.add(documents, **how)
            rows.append((name, f"{count:,}", *(f"{cranfield.ndcg(server.search(cranfield.queries, **way)):.2f}" for way in ways.values())))
            server.end()
    score, count = late_chunks(options, cranfield, documents)
    rows.append((f"late chunks of {options.size} tokens", f"{count:,}", f"{score:.2f}", *[""] * (len(ways) - 1)))
    print("\n".join(report.table(("kept", "items", *ways), rows)))


if __name__ == "__main__":
    main()
