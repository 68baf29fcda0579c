# SPDX-License-Identifier: Apache-2.0
"""heads_worker.py ENGINE FOLDER - one engine in one process for bench/heads.py, driven by JSON lines on stdin.

FOLDER holds ranker/, cls/, splade/, static/ and the graphs ranker.onnx and splade.onnx. Jobs: rerank (scores of documents
for one query), embed (rows pooled by the first token), sparse (weights, of which a dense row is handed over for parity
alone), static (rows). Peers are set as in worker.py: batches sorted by length of at most 512 padded tokens, a session a thread.
Commands: {"do": job, "query", "texts", "path"}; the answer is {"seconds"}, and with a path the result is saved there.
"""
import ctypes
import json
import os
import sys
import time

import numpy
import worker

THREADS, BATCH = worker.THREADS, 32


class Fletch:
    """The library by ctypes, a model a job."""
    jobs = {"rerank": "ranker", "embed": "cls", "sparse": "splade", "static": "static"}

    class List(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("ids", ctypes.POINTER(ctypes.c_int32)), ("values", ctypes.POINTER(ctypes.c_float))]

    class Lists(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("columns", ctypes.c_size_t), ("list", ctypes.c_void_p)]

    def __init__(self, folder: str) -> None:
        self.models = {job: worker.Fletch(f"{folder}/{name}") for job, name in self.jobs.items()}
        self.version = self.models["rerank"].version

    @staticmethod
    def texts(texts: list[str]):
        pieces = [text.encode() for text in texts]
        offsets = numpy.zeros(len(pieces) + 1, numpy.int64)
        numpy.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        return worker.Fletch.Texts(len(pieces), b"".join(pieces), offsets.ctypes.data, None, None, None), offsets

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        model, scores, raw = self.models["rerank"], numpy.empty(len(texts), numpy.float32), query.encode()
        given, _kept = self.texts(texts)
        model.check(model.library.fletch_rerank(model.model, raw, ctypes.c_size_t(len(raw)), ctypes.byref(given), None,
                                                scores.ctypes.data_as(ctypes.c_void_p), ctypes.byref(model.error)))
        return scores

    def embed(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.models["embed"].embed(texts)

    def static(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.models["static"].embed(texts)

    def sparse(self, _: str, texts: list[str]):
        model, lists = self.models["sparse"], ctypes.POINTER(self.Lists)()
        given, _kept = self.texts(texts)
        model.check(model.library.fletch_embed_sparse(model.model, ctypes.byref(given), None, ctypes.byref(lists),
                                                      ctypes.byref(model.error)))
        return lists

    def dense(self, lists) -> numpy.ndarray:
        each = ctypes.cast(lists.contents.list, ctypes.POINTER(self.List))
        rows = numpy.zeros((lists.contents.count, self.models["sparse"].dimensions), numpy.float32)
        for line, row in enumerate(rows):
            one = each[line]
            for i in range(one.count):
                row[one.ids[i]] = one.values[i]
        return rows

    def done(self, lists) -> None:
        self.models["sparse"].library.fletch_lists_free(lists)


class Graphs:
    """onnxruntime and OpenVINO on the exported graphs: pairs by the package tokenizers, sorted batches."""
    jobs = {"rerank": "ranker", "sparse": "splade"}

    def __init__(self, folder: str) -> None:
        from tokenizers import Tokenizer
        self.folder = folder
        self.tokenizer = Tokenizer.from_file(f"{folder}/ranker/tokenizer.json")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(512)
        self.open()

    def batches(self, inputs: list):
        encoded = self.tokenizer.encode_batch_fast(inputs)
        order = sorted(range(len(encoded)), key=lambda row: -len(encoded[row].ids))
        start = 0
        while start < len(order):
            width = len(encoded[order[start]].ids)
            rows = order[start:start + max(1, worker.BATCH_TOKENS // width)]
            start += len(rows)
            given = {name: numpy.zeros((len(rows), width), numpy.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
            for line, row in enumerate(rows):
                one = encoded[row]
                given["input_ids"][line, :len(one.ids)] = one.ids
                given["attention_mask"][line, :len(one.ids)] = 1
                given["token_type_ids"][line, :len(one.ids)] = one.type_ids
            yield rows, given

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        return 1 / (1 + numpy.exp(-self.run("ranker", [(query, text) for text in texts])[:, 0]))

    def sparse(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.run("splade", texts)

    def dense(self, rows):
        return rows

    def done(self, _rows) -> None:
        pass


class Onnxruntime(Graphs):
    """A session of one thread, called by as many callers as there are threads."""

    def open(self) -> None:
        import concurrent.futures
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.version = "onnxruntime " + onnxruntime.__version__
        self.sessions = {name: onnxruntime.InferenceSession(f"{self.folder}/{name}.onnx", options, providers=["CPUExecutionProvider"])
                         for name in self.jobs.values()}
        self.callers = concurrent.futures.ThreadPoolExecutor(THREADS)

    def run(self, name: str, inputs: list) -> numpy.ndarray:
        work, out = iter(list(self.batches(inputs))), [None] * len(inputs)

        def serve(_) -> None:
            while (item := next(work, None)) is not None:
                for row, result in zip(item[0], self.sessions[name].run(None, item[1])[0]):
                    out[row] = result

        list(self.callers.map(serve, range(THREADS)))
        return numpy.stack(out)


class Openvino(Graphs):
    """fp32, as many streams as threads, asynchronous queue."""

    def open(self) -> None:
        import openvino
        self.version = "openvino " + openvino.__version__.split("-")[0]
        core = openvino.Core()
        self.queues = {name: openvino.AsyncInferQueue(core.compile_model(f"{self.folder}/{name}.onnx", "CPU", {
            "NUM_STREAMS": str(THREADS), "INFERENCE_NUM_THREADS": str(THREADS), "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "THROUGHPUT"}), THREADS) for name in self.jobs.values()}

    def run(self, name: str, inputs: list) -> numpy.ndarray:
        out = [None] * len(inputs)

        def done(request, rows) -> None:
            for row, result in zip(rows, request.get_output_tensor(0).data):
                out[row] = result.copy()

        self.queues[name].set_callback(done)
        for rows, given in self.batches(inputs):
            self.queues[name].start_async(given, rows)
        self.queues[name].wait_all()
        return numpy.stack(out)


class SentenceTransformers:
    """CrossEncoder.predict and SparseEncoder.encode in batches of 32."""
    jobs = {"rerank": "ranker", "sparse": "splade"}

    def __init__(self, folder: str) -> None:
        import sentence_transformers
        import torch
        torch.set_num_threads(THREADS)
        self.version = f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}"
        self.ranker = sentence_transformers.CrossEncoder(folder + "/ranker", device="cpu")
        self.encoder = sentence_transformers.SparseEncoder(folder + "/splade", device="cpu")

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        return self.ranker.predict([(query, text) for text in texts], batch_size=BATCH, show_progress_bar=False)

    def sparse(self, _: str, texts: list[str]):
        return self.encoder.encode(texts, batch_size=BATCH, show_progress_bar=False)

    def dense(self, rows) -> numpy.ndarray:
        return rows.to_dense().numpy()

    def done(self, _rows) -> None:
        pass


class Model2vec:
    """StaticModel.encode with its defaults."""
    jobs = {"static": "static"}

    def __init__(self, folder: str) -> None:
        import model2vec
        self.version = "model2vec " + getattr(model2vec, "__version__", "")
        self.model = model2vec.StaticModel.from_pretrained(folder + "/static")

    def static(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.model.encode(texts)


ENGINES = {"fletch": Fletch, "onnxruntime": Onnxruntime, "openvino": Openvino, "sentence-transformers": SentenceTransformers,
           "model2vec": Model2vec}


def answer(engine, command: dict) -> dict:
    job, spent = command["do"], time.process_time()
    start = time.perf_counter()
    found = getattr(engine, job)(command["query"], command["texts"])
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    if command.get("path"):
        numpy.save(command["path"], engine.dense(found) if job == "sparse" else found)
    if job == "sparse":
        engine.done(found)
    return {"seconds": seconds, "processor": spent}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an engine prints must not mix with the replies
    engine = ENGINES[sys.argv[1]](sys.argv[2])
    replies.write(json.dumps({"version": engine.version, "jobs": list(engine.jobs)}) + "\n")
    for line in sys.stdin:
        replies.write(json.dumps(answer(engine, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
