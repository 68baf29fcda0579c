# SPDX-License-Identifier: Apache-2.0
"""nearest.py - the store's search beside faiss, usearch and simsimd: processor time of a query on one thread, and recall.

Rows lie in 2,000 clusters as those of real texts do (--rows takes a .npy of your own, its last rows are the queries).
Every round asks each way once, every other round in reverse; the best round counts. fletch is build/bench_store.

    python3.11 -m venv nearest && nearest/bin/pip install -r bench/nearest_requirements.txt
    nearest/bin/python bench/nearest.py [--count 250000] [--rounds 3] [--rows FILE.npy] [--build build]
"""
import pathlib
import re
import subprocess
import tempfile
import time

import faiss
import numpy
import simsimd
from usearch.index import MetricKind, search

from harness import arguments, in_turn
from report import table

K, QUERIES, COLUMNS, CLUSTERS, KEEP = 10, 24, 384, 2000, 400  # COLUMNS: of rows that are made


def unit(rows):
    return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def made(count):
    random = numpy.random.default_rng(1)
    middle = random.standard_normal((CLUSTERS, COLUMNS)).astype("f4")
    of = random.integers(0, CLUSTERS, count + QUERIES)
    return unit(middle[of] + random.standard_normal((count + QUERIES, COLUMNS)).astype("f4"))


def nearest(scores, k=K):
    best = numpy.argpartition(-scores, k - 1)[:k]
    return best[numpy.argsort(-scores[best], kind="stable")]


class Ways:
    """name -> a function that gives the K nearest of each query."""

    def __init__(self, rows, queries):
        self.rows, self.queries, columns = rows, queries, rows.shape[1]
        bytes_ = numpy.clip(numpy.rint(rows * 127 / numpy.abs(rows).max()), -127, 127).astype("i1")
        asked = numpy.clip(numpy.rint(queries * 127 / numpy.abs(queries).max()), -127, 127).astype("i1")
        bits, asked_bits = numpy.packbits(rows > 0, axis=1), numpy.packbits(queries > 0, axis=1)
        flat, narrow, binary = faiss.IndexFlatIP(columns), faiss.IndexScalarQuantizer(
            columns, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT), faiss.IndexBinaryFlat(columns)
        flat.add(rows)
        narrow.train(rows[:20000])
        narrow.add(rows)
        binary.add(bits)
        self.all = {
            "faiss Flat, eight a call": lambda: [row for at in range(0, QUERIES, 8) for row in flat.search(queries[at:at + 8], K)[1]],
            "faiss Flat": lambda: [flat.search(query[None], K)[1][0] for query in queries],
            "faiss SQ8": lambda: [narrow.search(query[None], K)[1][0] for query in queries],
            f"faiss BinaryFlat, {KEEP} compared by numpy": lambda: [
                self.compared(i, binary.search(asked_bits[i:i + 1], KEEP)[1][0]) for i in range(QUERIES)],
            "usearch exact f32": lambda: [search(rows, query, K, MetricKind.IP, exact=True, threads=1).keys for query in queries],
            "usearch exact i8": lambda: [search(bytes_, query, K, MetricKind.IP, exact=True, threads=1).keys for query in asked],
            "simsimd f32": lambda: [nearest(numpy.asarray(simsimd.cdist(query[None], rows, "dot"))[0]) for query in queries],
            "simsimd i8": lambda: [nearest(numpy.asarray(simsimd.cdist(query[None], bytes_, "dot"))[0]) for query in asked],
            f"simsimd hamming, {KEEP} compared by numpy": lambda: [
                self.compared(i, nearest(-numpy.asarray(simsimd.cdist(asked_bits[i:i + 1], bits, "hamming", dtype="bin8"))[0], KEEP))
                for i in range(QUERIES)],
        }

    def compared(self, i, some):
        return some[nearest(self.rows[some] @ self.queries[i])]


def fletch(options, rows, path):
    """name -> (ms a query, recall): best times of bench_store."""
    rows.tofile(path)
    text = subprocess.run([options.build / "bench_store", str(len(rows) - QUERIES), str(rows.shape[1]), str(QUERIES), path],
                          check=True, capture_output=True, text=True).stdout
    out = {}
    for name, one, eight, recall in re.findall(r"^(\w+) .*?best ([\d.]+) ms.*best ([\d.]+) ms; recall@10 ([\d.]+)", text, re.M):
        out[f"fletch {name}"], out[f"fletch {name}, eight a pass"] = (float(one), float(recall)), (float(eight), float(recall))
    return out


def main():
    parser = arguments(__doc__, "build", count=250000, rounds=3)
    parser.add_argument("--rows", type=pathlib.Path)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    rows = unit(numpy.load(options.rows)) if options.rows else made(options.count)
    ways = Ways(rows[:-QUERIES], rows[-QUERIES:])
    truth = [nearest(rows[:-QUERIES] @ query) for query in rows[-QUERIES:]]
    best = {}

    def take(name, ms, recall):
        best[name] = min(ms, best.get(name, (ms,))[0]), recall

    with tempfile.NamedTemporaryFile() as file:
        for turn in range(options.rounds):
            for name, found in fletch(options, rows, file.name).items():
                take(name, *found)
            for name in in_turn(ways.all, turn):
                begin = time.process_time()
                found = ways.all[name]()
                ms = (time.process_time() - begin) * 1e3 / QUERIES
                take(name, ms, sum(len(set(map(int, a)) & set(map(int, b))) for a, b in zip(found, truth)) / (K * QUERIES))
    print(f"{len(rows) - QUERIES:,} rows of {rows.shape[1]}, {options.rounds} rounds; faiss {faiss.__version__}, simsimd {simsimd.__version__}\n")
    print("\n".join(table(("way", "processor time a query, ms", "recall@10"), [
        (name, f"{ms:.2f}", f"{recall:.3f}") for name, (ms, recall) in sorted(best.items(), key=lambda item: item[1][0])])))


if __name__ == "__main__":
    main()
