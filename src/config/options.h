/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the one table of options: every key, its type, default, bounds and sentence.
 *
 * Role    An X-macro. config.h makes the enum FL_KEY_<ID> of it, table.c the rows that parsing,
 *         bounds, fletch_option_at, --help, docs/options.md and the man pages read. To add an
 *         option, add a row here, run the target `docs`, and read it with a getter of config.h.
 * Columns X(ID, key, flag, TYPE, default, bounds, text)
 *         ID      the key in capitals with '_' for '.'; also the environment variable after FLETCH_
 *         key     "room.name" as in TOML; flag: the same with dashes, as on the command line
 *         TYPE    BOOL INT SIZE FLOAT STRING ENUM LIST
 *         default as a person would type it; "" for none
 *         bounds  FL_ANY, FL_RANGE(min, max), FL_RANGE_OR(word, min, max) where the word means 0,
 *                 FL_SIZES(word, text, max), FL_ONE_OF("a|b"); in a LIST each element is one of
 *                 them, and the alternative N stands for any whole number
 *         text    one sentence that says what the value does
 * Proof   tests/unit/test_config.c: IDs, keys and flags agree, defaults are in bounds. */
#ifndef FL_CONFIG_OPTIONS_H
#define FL_CONFIG_OPTIONS_H

#define FL_ANY                      "", 0, 0, NULL, NULL
#define FL_RANGE(min, max)          #min ".." #max, min, max, NULL, NULL
#define FL_RANGE_OR(word, min, max) word "|" #min ".." #max, min, max, NULL, word
#define FL_SIZES(word, text, max)   word "|0.." text, 0, max, NULL, word
#define FL_ONE_OF(choices)          choices, 0, 0, choices, NULL

#define FL_PROVIDERS "auto|cpu|cuda|gpu|tensorrt|trt|directml|dml|coreml|openvino|webgpu|plugin"
#define FL_POOLINGS                                                                                \
    "auto|cls|mean|max|mean_sqrt_len|mean_sqrt_len_tokens|weightedmean|lasttoken|splade|"          \
    "colbert"

/* clang-format off */
#define FL_OPTION_MAP(X)                                                                           \
    X(MODEL_ID, "model.id", "--model-id", STRING, "all-MiniLM-L6-v2", FL_ANY,                      \
      "Model to open: a folder, a hub id, or a level.")                                            \
    X(MODEL_REVISION, "model.revision", "--model-revision", STRING, "main", FL_ANY,                \
      "Branch, tag or commit of the hub repository.")                                              \
    X(MODEL_LEVEL, "model.level", "--model-level", ENUM, "medium", FL_ONE_OF("low|medium|high"),   \
      "Model by level, used if model.id is not set: low is paraphrase-MiniLM-L3-v2, medium "       \
      "all-MiniLM-L6-v2, high all-mpnet-base-v2.")                                                 \
    X(MODEL_AUTO_DOWNLOAD, "model.auto_download", "--model-auto-download", BOOL, "true", FL_ANY,   \
      "Download a model that is not in the cache.")                                                \
    X(MODEL_OFFLINE, "model.offline", "--model-offline", BOOL, "false", FL_ANY,                    \
      "Never use the network, not even to check for a new revision.")                              \
    X(MODEL_CACHE_DIR, "model.cache_dir", "--model-cache-dir", STRING, "", FL_ANY,                 \
      "Folder of the hub cache; none: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub.")     \
    X(MODEL_TASK, "model.task", "--model-task", STRING, "", FL_ANY,                                \
      "Task of a model with an adapter (Jina v3) or route (Router) for each; and its prompt.")     \
    X(MODEL_POOLING, "model.pooling", "--model-pooling", LIST, "auto", FL_ONE_OF(FL_POOLINGS),     \
      "How token vectors become one; several are concatenated; auto: as the model says.")          \
    X(MODEL_NORMALIZE, "model.normalize", "--model-normalize", ENUM, "auto",                       \
      FL_ONE_OF("auto|true|false"),                                                                \
      "Scale vectors to unit length; auto: as the model says.")                                    \
    X(MODEL_PROMPT_NAME, "model.prompt_name", "--model-prompt-name", STRING, "", FL_ANY,           \
      "Name of one of the model's prompts, prepended to every text.")                              \
    X(MODEL_PROMPT, "model.prompt", "--model-prompt", STRING, "", FL_ANY,                          \
      "Text prepended to every text; takes precedence over model.prompt_name.")                    \
    X(MODEL_DIMENSIONS, "model.dimensions", "--model-dimensions", INT, "0",                        \
      FL_RANGE_OR("auto", 0, 65536),                                                               \
      "Cut vectors to this many dimensions, then normalise again; 0: all.")                        \
    X(MODEL_MAX_LENGTH, "model.max_length", "--model-max-length", INT, "0",                        \
      FL_RANGE_OR("auto", 0, 1048576),                                                             \
      "Tokens of a text that are used, special tokens included; 0: as the model says.")            \
    X(MODEL_TRUNCATE, "model.truncate", "--model-truncate", ENUM, "right",                         \
      FL_ONE_OF("right|left|error"),                                                               \
      "Where longer texts are cut: at the end (right), at the start (left); error: rejected.")     \
    X(MODEL_WEIGHTS, "model.weights", "--model-weights", ENUM, "auto",                             \
      FL_ONE_OF("auto|float|stored|q8|q4"),                                                        \
      "How the cpu stores the weights of fp32 products; float: as float32; stored: as in the "     \
      "file; auto: as stored for large models of 4 to 8 bits, float32 otherwise; q8, q4: in at "   \
      "most 8 or 4 bits, rounding wider ones.")                                                    \
    X(MODEL_PACK_CACHE, "model.pack_cache", "--model-pack-cache", STRING, "", FL_ANY,              \
      "Folder where the cpu stores packed weights, which later openings map; auto: "               \
      "~/.cache/fletch/packed, for large models; none: weights are packed at every start.")        \
    X(PROVIDER_ORDER, "provider.order", "--provider-order", LIST, "auto", FL_ONE_OF(FL_PROVIDERS), \
      "Execution providers, tried in turn; gpu means cuda, trt tensorrt, dml directml, plugin "    \
      "the one in onnxruntime.provider_library.")                                                  \
    X(PROVIDER_AUTO_SELECTION, "provider.auto_selection", "--provider-auto-selection", BOOL,       \
      "true", FL_ANY, "Let auto choose the provider by the hardware found.")                       \
    X(PROVIDER_HARDWARE_DETECTION, "provider.hardware_detection", "--provider-hardware-detection", \
      BOOL, "true", FL_ANY, "Detect devices before choosing a provider.")                          \
    X(PROVIDER_FALLBACK, "provider.fallback", "--provider-fallback", BOOL, "true", FL_ANY,         \
      "Try the next provider of provider.order, and finally the cpu, when one is unavailable; "    \
      "a provider named alone has to work unless this is set explicitly.")                         \
    X(PROVIDER_ENGINE, "provider.engine", "--provider-engine", ENUM, "auto",                       \
      FL_ONE_OF("auto|native|onnxruntime"), "Engine that runs the cpu and cuda providers.")        \
    X(PROVIDER_DEVICES, "provider.devices", "--provider-devices", LIST, "0",                       \
      FL_ONE_OF("all|N|PROVIDER:N"),                                                               \
      "Devices to use, one replica on each; cuda:0,1 applies to one provider; the cpu has none.")  \
    X(PROVIDER_PRECISION, "provider.precision", "--provider-precision", ENUM, "auto",              \
      FL_ONE_OF("auto|fast|fp32|fp16|bf16|int16|int8|fp8"),                                        \
      "Number format of the arithmetic; auto: one that preserves quality on the device; fast: "    \
      "on the cpu int16 where it is faster, fp32 elsewhere.")                                      \
    X(PROVIDER_NUMERICS, "provider.numerics", "--provider-numerics", ENUM, "native",               \
      FL_ONE_OF("native|portable"),                                                                \
      "Reproducibility of vectors; native: on the cpu the same bits on every machine except "      \
      "with int8 and bf16, whose instructions round differently; portable: the same bits with "    \
      "these too, on the cpu only.")                                                               \
    X(PROVIDER_WARM_UP, "provider.warm_up", "--provider-warm-up", BOOL, "false", FL_ANY,           \
      "Let each engine compile and allocate what it needs when it is opened.")                     \
    X(PROVIDER_DETERMINISTIC, "provider.deterministic", "--provider-deterministic", BOOL, "false", \
      FL_ANY, "Same bytes on every run on CUDA too (the CPU always gives them).")                  \
    X(CPU_INTRA_OP_THREADS, "cpu.intra_op_threads", "--cpu-intra-op-threads", INT, "0",            \
      FL_RANGE_OR("auto", 0, 1024),                                                                \
      "Threads per batch; 0: the cores this process may use.")                                     \
    X(CPU_REPLICAS, "cpu.replicas", "--cpu-replicas", INT, "0", FL_RANGE_OR("auto", 0, 1024),      \
      "Replicas on the cpu, each pinned to its share of the cores; 0: one on each NUMA node.")     \
    X(CPU_INTER_OP_THREADS, "cpu.inter_op_threads", "--cpu-inter-op-threads", INT, "1",            \
      FL_RANGE(1, 1024), "ONNX Runtime: operators that may run in parallel.")                      \
    X(CPU_PARALLEL_EXECUTION, "cpu.parallel_execution", "--cpu-parallel-execution", BOOL, "false", \
      FL_ANY, "ONNX Runtime: run independent operators in parallel.")                              \
    X(CPU_ISA, "cpu.isa", "--cpu-isa", ENUM, "auto",                                               \
      FL_ONE_OF("auto|ref|avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx|neon|neondot|neonmm"),     \
      "Instruction set of the CPU kernels; auto: the best of this processor.")                     \
    X(ONNXRUNTIME_LIBRARY, "onnxruntime.library", "--onnxruntime-library", STRING, "", FL_ANY,     \
      "File of the ONNX Runtime library; none: searched in the usual places.")                     \
    X(ONNXRUNTIME_PROVIDER_LIBRARY, "onnxruntime.provider_library",                                \
      "--onnxruntime-provider-library", STRING, "", FL_ANY,                                        \
      "File of a plug-in execution provider of ONNX Runtime, which becomes the provider plugin.")  \
    X(ONNXRUNTIME_GRAPH_OPTIMIZATION_LEVEL, "onnxruntime.graph_optimization_level",                \
      "--onnxruntime-graph-optimization-level", INT, "3", FL_RANGE(0, 3),                          \
      "Graph optimisation: 0 off, 1 basic, 2 extended, 3 all.")                                    \
    X(ONNXRUNTIME_MEMORY_PATTERN, "onnxruntime.memory_pattern", "--onnxruntime-memory-pattern",    \
      BOOL, "true", FL_ANY, "Plan memory by the pattern of the first run.")                        \
    X(ONNXRUNTIME_CPU_ARENA, "onnxruntime.cpu_arena", "--onnxruntime-cpu-arena", BOOL, "true",     \
      FL_ANY, "Keep CPU memory in an arena.")                                                      \
    X(ONNXRUNTIME_ARENA_STRATEGY, "onnxruntime.arena_strategy", "--onnxruntime-arena-strategy",    \
      ENUM, "power_of_two", FL_ONE_OF("power_of_two|as_requested"),                                \
      "How the device arena of ONNX Runtime grows.")                                               \
    X(ONNXRUNTIME_MODEL, "onnxruntime.model", "--onnxruntime-model", ENUM, "auto",                 \
      FL_ONE_OF("auto|file|graph"),                                                                \
      "What ONNX Runtime runs: the folder's .onnx file, or a graph built from its weights.")       \
    X(TENSORRT_CACHE_DIR, "tensorrt.cache_dir", "--tensorrt-cache-dir", STRING, "", FL_ANY,        \
      "Folder where TensorRT stores compiled engines; none: compiled at every start.")             \
    X(COREML_COMPUTE_UNITS, "coreml.compute_units", "--coreml-compute-units", ENUM, "all",         \
      FL_ONE_OF("all|cpu|cpu_and_gpu|cpu_and_neural_engine"),                                      \
      "Processors that CoreML may use.")                                                           \
    X(OPENVINO_DEVICE, "openvino.device", "--openvino-device", ENUM, "gpu",                        \
      FL_ONE_OF("gpu|npu|cpu"), "Kind of device that OpenVINO runs on.")                           \
    X(OPENVINO_CACHE_DIR, "openvino.cache_dir", "--openvino-cache-dir", STRING, "", FL_ANY,        \
      "Folder where OpenVINO stores compiled models; none: compiled at every start.")              \
    X(WEBGPU_POWER_PREFERENCE, "webgpu.power_preference", "--webgpu-power-preference", ENUM,       \
      "high", FL_ONE_OF("high|low"), "Which GPU WebGPU uses if there are several.")                \
    X(WEBGPU_BACKEND, "webgpu.backend", "--webgpu-backend", ENUM, "auto",                          \
      FL_ONE_OF("auto|vulkan|d3d12"), "Graphics API that WebGPU uses; auto: the system's own.")    \
    X(CUDA_MODULE, "cuda.module", "--cuda-module", STRING, "", FL_ANY,                             \
      "File of the CUDA engine, libfletch_cuda.so; none: beside the program or library.")          \
    X(CUDA_CUBLASLT, "cuda.cublaslt", "--cuda-cublaslt", STRING, "", FL_ANY,                       \
      "File or folder of libcublasLt; none: searched in CUDA and Python installations.")           \
    X(CUDA_MEMORY_LIMIT, "cuda.memory_limit", "--cuda-memory-limit", SIZE, "none",                 \
      FL_SIZES("none", "1 TiB", 0x1p40), "Device memory that one replica may use.")                \
    X(CUDA_STREAMS, "cuda.streams", "--cuda-streams", INT, "2", FL_RANGE(1, 64),                   \
      "Compute streams of a device.")                                                              \
    X(CUDA_TRANSFER_STREAM, "cuda.transfer_stream", "--cuda-transfer-stream", BOOL, "true",        \
      FL_ANY, "Copy on a separate stream while another one computes.")                             \
    X(CUDA_GRAPHS, "cuda.graphs", "--cuda-graphs", BOOL, "true", FL_ANY,                           \
      "Launch each batch as one captured graph.")                                                  \
    X(CUDA_MEMORY_POOL, "cuda.memory_pool", "--cuda-memory-pool", BOOL, "true", FL_ANY,            \
      "Allocate device memory from the driver's pool, shared by all models of the process.")       \
    X(CUDA_TIMEOUT_SECONDS, "cuda.timeout_seconds", "--cuda-timeout-seconds", INT, "60",           \
      FL_RANGE_OR("off", 0, 86400),                                                                \
      "Seconds after which a device that does not answer is abandoned until it does.")             \
    X(IO_BINDING, "io.binding", "--io-binding", BOOL, "true", FL_ANY,                              \
      "ONNX Runtime: bind inputs and outputs, on CUDA and TensorRT to pinned memory.")             \
    X(IO_PREALLOCATED, "io.preallocated", "--io-preallocated", BOOL, "true", FL_ANY,               \
      "Allocate input and output buffers when the model is opened.")                               \
    X(IO_INPUT_BUFFERS, "io.input_buffers", "--io-input-buffers", INT, "4", FL_RANGE(1, 1024),     \
      "Input buffers kept per replica.")                                                           \
    X(IO_OUTPUT_BUFFERS, "io.output_buffers", "--io-output-buffers", INT, "4", FL_RANGE(1, 1024),  \
      "Output buffers kept per replica.")                                                          \
    X(IO_ZERO_COPY, "io.zero_copy", "--io-zero-copy", BOOL, "true", FL_ANY,                        \
      "Write results straight into the caller's memory where the device can.")                     \
    X(IO_BATCH_OPTIMIZATION, "io.batch_optimization", "--io-batch-optimization", BOOL, "true",     \
      FL_ANY, "Size batches by the engine's throughput and the available memory.")                 \
    X(POOL_ENABLE, "pool.enable", "--pool-enable", BOOL, "true", FL_ANY,                           \
      "Keep and reuse result buffers.")                                                            \
    X(POOL_MAX_BUFFERS, "pool.max_buffers", "--pool-max-buffers", INT, "32", FL_RANGE(1, 65536),   \
      "Buffers the pool keeps; the least recently used goes first.")                               \
    X(POOL_MAX_BYTES, "pool.max_bytes", "--pool-max-bytes", SIZE, "256MiB",                        \
      FL_SIZES("none", "1 TiB", 0x1p40), "Bytes the pool keeps.")                                  \
    X(POOL_PRESSURE_DETECTION, "pool.pressure_detection", "--pool-pressure-detection", BOOL,       \
      "true", FL_ANY, "Empty the pool when memory runs low.")                                      \
    X(POOL_PRESSURE_THRESHOLD, "pool.pressure_threshold", "--pool-pressure-threshold", FLOAT,      \
      "0.8", FL_RANGE(0.0, 1.0), "Share of memory in use that counts as low memory.")              \
    X(BATCH_DYNAMIC, "batch.dynamic", "--batch-dynamic", BOOL, "true", FL_ANY,                     \
      "Combine texts of different callers into one batch.")                                        \
    X(BATCH_MIN_TEXTS, "batch.min_texts", "--batch-min-texts", INT, "8", FL_RANGE(1, 65536),       \
      "Number of texts at which a batch stops waiting for callers that are coming back.")          \
    X(BATCH_MAX_TEXTS, "batch.max_texts", "--batch-max-texts", INT, "64", FL_RANGE(1, 65536),      \
      "Maximum texts in a batch; unless set, only tokens limit bulk and GPU batches.")             \
    X(BATCH_MAX_TOKENS, "batch.max_tokens", "--batch-max-tokens", INT, "16384",                    \
      FL_RANGE(16, 1048576),                                                                       \
      "Maximum tokens in a batch; unless set, as many as the engine gains by.")                    \
    X(BATCH_MAX_WAIT_MS, "batch.max_wait_ms", "--batch-max-wait-ms", INT, "10",                    \
      FL_RANGE(0, 60000),                                                                          \
      "Maximum milliseconds a text waits, and only while callers are coming back.")                \
    X(BATCH_TARGET_LATENCY_MS, "batch.target_latency_ms", "--batch-target-latency-ms", INT, "0",   \
      FL_RANGE_OR("off", 0, 60000),                                                                \
      "95th percentile of latency to aim for by adapting the batch size; 0: off.")                 \
    X(BATCH_THROUGHPUT, "batch.throughput", "--batch-throughput", BOOL, "true", FL_ANY,            \
      "Prefer full batches while callers are waiting.")                                            \
    X(BATCH_MEMORY_PREDICTION, "batch.memory_prediction", "--batch-memory-prediction", BOOL,       \
      "true", FL_ANY, "Predict the memory of a batch and split it to fit.")                        \
    X(MEMORY_LIMIT, "memory.limit", "--memory-limit", SIZE, "none",                                \
      FL_SIZES("none", "16 TiB", 0x1p44),                                                          \
      "Limit for the memory of the whole process: batches are split to stay below it.")            \
    X(CACHE_MAX_BYTES, "cache.max_bytes", "--cache-max-bytes", SIZE, "none",                       \
      FL_SIZES("none", "256 GiB", 0x1p38),                                                         \
      "Size of the result cache, which answers repeated texts.")                                   \
    X(PROFILE_FILE, "profile.file", "--profile-file", STRING, "", FL_ANY,                          \
      "File for a Chrome trace of tokenising, queueing, copies, each layer and output; none: "     \
      "off.")                                                                                      \
    X(PROFILE_START, "profile.start", "--profile-start", BOOL, "true", FL_ANY,                     \
      "Trace from the start; false: after POST /start_profile or fletch_profile_start.")           \
    X(SERVER_MODELS, "server.models", "--server-models", STRING, "", FL_ANY,                       \
      "Models to serve, NAME=ID or ID, comma-separated; none: model.id.")                          \
    X(SERVER_ON_DEMAND, "server.on_demand", "--server-on-demand", STRING, "", FL_ANY,              \
      "Models opened when a request names them, comma-separated: folders of models, NAME=ID, "     \
      "ID, or cached for everything in the hub cache and Ollama's store.")                         \
    X(SERVER_KEEP_ALIVE, "server.keep_alive", "--server-keep-alive", STRING, "5m", FL_ANY,         \
      "How long an idle model of server.on_demand stays open: 5m, 1h30m, seconds, 0, or -1 for "   \
      "ever; a request's keep_alive takes precedence.")                                            \
    X(SERVER_STORE, "server.store", "--server-store", STRING, "", FL_ANY,                          \
      "SQLite file of the store of /add; empty: limited memory, none: no /add and /search.")       \
    X(SERVER_STORE_SEARCH, "server.store_search", "--server-store-search", ENUM, "exact",          \
      FL_ONE_OF("exact|int8|signs"),                                                               \
      "What /search reads of each stored vector: exact: all of it; int8, signs: a code of 8 bits " \
      "or 1 bit a number, then all of the likely ones, faster, though the best may be missed.")    \
    X(SERVER_BATCHES, "server.batches", "--server-batches", STRING, "", FL_ANY,                    \
      "Folder for /v1/files and /v1/batches; empty: these routes are off.")                        \
    X(SERVER_HOST, "server.host", "--server-host", STRING, "127.0.0.1", FL_ANY,                    \
      "Address to listen on; none: no TCP.")                                                       \
    X(SERVER_PORT, "server.port", "--server-port", INT, "9900", FL_RANGE(0, 65535),                \
      "Port to listen on; 0: any free one, which is printed.")                                     \
    X(SERVER_UNIX_SOCKET, "server.unix_socket", "--server-unix-socket", STRING, "", FL_ANY,        \
      "Path of a Unix socket to listen on as well.")                                               \
    X(SERVER_API_KEY_FILE, "server.api_key_file", "--server-api-key-file", STRING, "", FL_ANY,     \
      "File of accepted API keys, one per line; none: no key is required.")                        \
    X(SERVER_ALLOW_PULL, "server.allow_pull", "--server-allow-pull", BOOL, "false", FL_ANY,        \
      "Let clients pull models into the cache and delete them; with keys, only admin keys.")       \
    X(SERVER_INSECURE, "server.insecure", "--server-insecure", BOOL, "false", FL_ANY,              \
      "Listen on addresses that other machines can reach, without requiring a key.")               \
    X(SERVER_CORS_ORIGIN, "server.cors_origin", "--server-cors-origin", STRING, "", FL_ANY,        \
      "Origins whose web pages may call the server, comma-separated, or *; none: no page.")        \
    X(SERVER_ALLOWED_HOSTS, "server.allowed_hosts", "--server-allowed-hosts", STRING, "", FL_ANY,  \
      "Names allowed in Host when no key is required, comma-separated, or *.")                     \
    X(SERVER_MAX_BODY, "server.max_body", "--server-max-body", SIZE, "32MiB",                      \
      FL_SIZES("none", "16 GiB", 0x1p34), "Largest request body.")                                 \
    X(SERVER_MAX_BODY_MEMORY, "server.max_body_memory", "--server-max-body-memory", SIZE, "1GiB",  \
      FL_SIZES("none", "16 TiB", 0x1p44),                                                          \
      "Memory for all request bodies and their parsed contents; beyond it requests get 503.")      \
    X(SERVER_MAX_REPLY_MEMORY, "server.max_reply_memory", "--server-max-reply-memory", SIZE,       \
      "1GiB", FL_SIZES("none", "16 TiB", 0x1p44),                                                  \
      "Memory for all replies being made or sent; beyond it requests get 503.")                    \
    X(SERVER_COMPRESS, "server.compress", "--server-compress", SIZE, "none",                       \
      FL_SIZES("none", "16 TiB", 0x1p44),                                                          \
      "Minimum size of replies that are compressed for clients accepting gzip; none: never.")      \
    X(SERVER_MAX_CONNECTIONS, "server.max_connections", "--server-max-connections", INT, "16384",  \
      FL_RANGE(1, 1000000), "Maximum open connections; more wait to be accepted.")                 \
    X(SERVER_IO_THREADS, "server.io_threads", "--server-io-threads", INT, "0",                     \
      FL_RANGE_OR("auto", 0, 64),                                                                  \
      "Threads that read and write sockets; 0: one, and one for each eight cores, up to four.")    \
    X(SERVER_MAX_QUEUE_TOKENS, "server.max_queue_tokens", "--server-max-queue-tokens", INT,        \
      "1048576", FL_RANGE(1, 1073741824),                                                          \
      "Maximum queued tokens; beyond it requests are rejected.")                                   \
    X(SERVER_DEADLINE_MS, "server.deadline_ms", "--server-deadline-ms", INT, "30000",              \
      FL_RANGE_OR("off", 0, 86400000), "Milliseconds after which a request is cancelled.")         \
    X(SERVER_HEADER_SECONDS, "server.header_seconds", "--server-header-seconds", INT, "10",        \
      FL_RANGE(1, 3600),                                                                           \
      "Seconds for the headers of a request to arrive, from their first byte.")                    \
    X(SERVER_BODY_SECONDS, "server.body_seconds", "--server-body-seconds", INT, "60",              \
      FL_RANGE(1, 3600), "Seconds for a body to arrive, plus one for each 64 KiB.")                \
    X(SERVER_WRITE_SECONDS, "server.write_seconds", "--server-write-seconds", INT, "30",           \
      FL_RANGE(1, 3600), "Seconds in which a client has to read the next 64 KiB of a reply.")      \
    X(SERVER_IDLE_SECONDS, "server.idle_seconds", "--server-idle-seconds", INT, "120",             \
      FL_RANGE(1, 86400), "Seconds a connection may be idle.")                                     \
    X(SERVER_IDLE_EXIT, "server.idle_exit", "--server-idle-exit", INT, "0",                        \
      FL_RANGE_OR("off", 0, 31536000),                                                             \
      "Seconds without requests or work after which the server exits with code 0.")                \
    X(SERVER_DRAIN_SECONDS, "server.drain_seconds", "--server-drain-seconds", INT, "30",           \
      FL_RANGE(0, 3600), "Seconds that running requests may take after SIGTERM.")                  \
    X(SERVER_LAME_DUCK_MS, "server.lame_duck_ms", "--server-lame-duck-ms", INT, "500",             \
      FL_RANGE(0, 600000),                                                                         \
      "Milliseconds after SIGTERM in which /ready fails but requests are still answered.")         \
    X(SERVER_WATCHDOG_SECONDS, "server.watchdog_seconds", "--server-watchdog-seconds", INT, "300", \
      FL_RANGE_OR("off", 0, 86400),                                                                \
      "Seconds without progress after which the process exits with code 70.")                      \
    X(SERVER_LOG_FORMAT, "server.log_format", "--server-log-format", ENUM, "auto",                 \
      FL_ONE_OF("auto|text|json"), "Format of the log; auto: text on a terminal, else json.")      \
    X(SERVER_LOG_LEVEL, "server.log_level", "--server-log-level", ENUM, "info",                    \
      FL_ONE_OF("error|warning|info|debug|trace"),                                                 \
      "Log level; info: every request, trace: every batch.")                                       \
    X(SERVER_METRICS_PREFIX, "server.metrics_prefix", "--server-metrics-prefix", STRING, "fletch", \
      FL_ANY, "Prefix of the metric names.")                                                       \
    X(SERVER_OTLP_ENDPOINT, "server.otlp_endpoint", "--server-otlp-endpoint", STRING, "", FL_ANY,  \
      "Address of an OpenTelemetry collector for traces and metrics over HTTP, such as "           \
      "http://localhost:4318; none: nothing is exported.")                                         \
    X(SERVER_OTLP_SERVICE, "server.otlp_service", "--server-otlp-service", STRING, "fletch",       \
      FL_ANY, "Name of this server in traces and exported metrics (service.name).")                \
    X(SERVER_OTLP_SAMPLE, "server.otlp_sample", "--server-otlp-sample", FLOAT, "1",                \
      FL_RANGE(0, 1),                                                                              \
      "Share of requests to trace when there is no traceparent to decide.")                        \
    X(SERVER_OTLP_INTERVAL_MS, "server.otlp_interval_ms", "--server-otlp-interval-ms", INT,        \
      "60000", FL_RANGE(1, 86400000), "Milliseconds between two exports of metrics.")
/* clang-format on */

#endif
