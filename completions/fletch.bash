# bash completion for fletch; printed by: fletch completion bash
_fletch() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command= flags= words= i options="--model-id --model-revision --model-level --model-auto-download --model-offline --model-cache-dir --model-pooling --model-normalize --model-prompt-name --model-prompt --model-dimensions --model-max-length --model-truncate --provider-order --provider-auto-selection --provider-hardware-detection --provider-fallback --provider-engine --provider-devices --provider-precision --provider-warm-up --provider-deterministic --cpu-intra-op-threads --cpu-replicas --cpu-inter-op-threads --cpu-parallel-execution --cpu-isa --onnxruntime-library --onnxruntime-graph-optimization-level --onnxruntime-memory-pattern --onnxruntime-cpu-arena --onnxruntime-arena-strategy --onnxruntime-model --tensorrt-cache-dir --coreml-compute-units --cuda-module --cuda-cublaslt --cuda-memory-limit --cuda-streams --cuda-transfer-stream --cuda-graphs --cuda-memory-pool --io-binding --io-preallocated --io-input-buffers --io-output-buffers --io-zero-copy --io-batch-optimization --pool-enable --pool-max-buffers --pool-max-bytes --pool-pressure-detection --pool-pressure-threshold --batch-dynamic --batch-min-texts --batch-max-texts --batch-max-tokens --batch-max-wait-ms --batch-target-latency-ms --batch-throughput --batch-memory-prediction --memory-limit --profile-file --server-models --server-store --server-host --server-port --server-unix-socket --server-api-key-file --server-insecure --server-cors-origin --server-max-body --server-max-body-memory --server-max-connections --server-io-threads --server-max-queue-tokens --server-deadline-ms --server-header-seconds --server-body-seconds --server-idle-seconds --server-drain-seconds --server-lame-duck-ms --server-watchdog-seconds --server-log-format --server-log-level --server-metrics-prefix"
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac
  done
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W "embed serve tokenize decode model config doctor version completion help --help --version" -- "$word"))
    return
  fi
  case $command:$before in
    embed:--model) compopt -o default 2>/dev/null; return ;;
    embed:-m) compopt -o default 2>/dev/null; return ;;
    embed:--revision) return ;;
    embed:--input) compopt -o default 2>/dev/null; return ;;
    embed:-i) compopt -o default 2>/dev/null; return ;;
    embed:--input-format) COMPREPLY=($(compgen -W "lines jsonl json csv tsv" -- "$word")); return ;;
    embed:--field) return ;;
    embed:--output) compopt -o default 2>/dev/null; return ;;
    embed:-o) compopt -o default 2>/dev/null; return ;;
    embed:--format) COMPREPLY=($(compgen -W "text json jsonl npy raw fvecs" -- "$word")); return ;;
    embed:--prompt-name) return ;;
    embed:--prompt) return ;;
    embed:--dimensions) return ;;
    embed:--normalize) COMPREPLY=($(compgen -W "true false auto" -- "$word")); return ;;
    embed:--pooling) return ;;
    embed:--dtype) COMPREPLY=($(compgen -W "float32 int8 uint8 binary ubinary" -- "$word")); return ;;
    embed:--max-length) return ;;
    embed:--truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    embed:--precision) return ;;
    embed:--threads) return ;;
    embed:--on-error) COMPREPLY=($(compgen -W "stop skip" -- "$word")); return ;;
    embed:--invalid-utf8) COMPREPLY=($(compgen -W "error replace" -- "$word")); return ;;
    embed:--max-line) return ;;
    embed:--stats-json) compopt -o default 2>/dev/null; return ;;
    embed:--progress) COMPREPLY=($(compgen -W "auto always never" -- "$word")); return ;;
    embed:--config) compopt -o default 2>/dev/null; return ;;
    embed:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    serve:--model) compopt -o default 2>/dev/null; return ;;
    serve:-m) compopt -o default 2>/dev/null; return ;;
    serve:--revision) return ;;
    serve:--host) return ;;
    serve:--port) return ;;
    serve:-p) return ;;
    serve:--unix-socket) return ;;
    serve:--api-key-file) compopt -o default 2>/dev/null; return ;;
    serve:--prompt-name) return ;;
    serve:--prompt) return ;;
    serve:--dimensions) return ;;
    serve:--normalize) COMPREPLY=($(compgen -W "true false auto" -- "$word")); return ;;
    serve:--pooling) return ;;
    serve:--max-length) return ;;
    serve:--truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    serve:--precision) return ;;
    serve:--threads) return ;;
    serve:--config) compopt -o default 2>/dev/null; return ;;
    serve:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    tokenize:--model) compopt -o default 2>/dev/null; return ;;
    tokenize:-m) compopt -o default 2>/dev/null; return ;;
    tokenize:--revision) return ;;
    tokenize:--input) compopt -o default 2>/dev/null; return ;;
    tokenize:-i) compopt -o default 2>/dev/null; return ;;
    tokenize:--input-format) COMPREPLY=($(compgen -W "lines jsonl json csv tsv" -- "$word")); return ;;
    tokenize:--field) return ;;
    tokenize:--output) compopt -o default 2>/dev/null; return ;;
    tokenize:-o) compopt -o default 2>/dev/null; return ;;
    tokenize:--format) COMPREPLY=($(compgen -W "text json jsonl" -- "$word")); return ;;
    tokenize:--max-length) return ;;
    tokenize:--truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    tokenize:--on-error) COMPREPLY=($(compgen -W "stop skip" -- "$word")); return ;;
    tokenize:--invalid-utf8) COMPREPLY=($(compgen -W "error replace" -- "$word")); return ;;
    tokenize:--max-line) return ;;
    tokenize:--progress) COMPREPLY=($(compgen -W "auto always never" -- "$word")); return ;;
    tokenize:--config) compopt -o default 2>/dev/null; return ;;
    tokenize:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    decode:--model) compopt -o default 2>/dev/null; return ;;
    decode:-m) compopt -o default 2>/dev/null; return ;;
    decode:--revision) return ;;
    decode:--input) compopt -o default 2>/dev/null; return ;;
    decode:-i) compopt -o default 2>/dev/null; return ;;
    decode:--output) compopt -o default 2>/dev/null; return ;;
    decode:-o) compopt -o default 2>/dev/null; return ;;
    decode:--format) COMPREPLY=($(compgen -W "text json jsonl" -- "$word")); return ;;
    decode:--on-error) COMPREPLY=($(compgen -W "stop skip" -- "$word")); return ;;
    decode:--max-line) return ;;
    decode:--config) compopt -o default 2>/dev/null; return ;;
    decode:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    model:--model) compopt -o default 2>/dev/null; return ;;
    model:-m) compopt -o default 2>/dev/null; return ;;
    model:--revision) return ;;
    model:--format) COMPREPLY=($(compgen -W "text json" -- "$word")); return ;;
    model:--progress) COMPREPLY=($(compgen -W "auto always never" -- "$word")); return ;;
    model:--config) compopt -o default 2>/dev/null; return ;;
    model:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    config:--model) compopt -o default 2>/dev/null; return ;;
    config:-m) compopt -o default 2>/dev/null; return ;;
    config:--revision) return ;;
    config:--format) COMPREPLY=($(compgen -W "text json" -- "$word")); return ;;
    config:--prompt-name) return ;;
    config:--prompt) return ;;
    config:--dimensions) return ;;
    config:--normalize) COMPREPLY=($(compgen -W "true false auto" -- "$word")); return ;;
    config:--pooling) return ;;
    config:--max-length) return ;;
    config:--truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    config:--precision) return ;;
    config:--threads) return ;;
    config:--config) compopt -o default 2>/dev/null; return ;;
    config:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    doctor:--model) compopt -o default 2>/dev/null; return ;;
    doctor:-m) compopt -o default 2>/dev/null; return ;;
    doctor:--revision) return ;;
    doctor:--format) COMPREPLY=($(compgen -W "text json" -- "$word")); return ;;
    doctor:--prompt-name) return ;;
    doctor:--prompt) return ;;
    doctor:--dimensions) return ;;
    doctor:--normalize) COMPREPLY=($(compgen -W "true false auto" -- "$word")); return ;;
    doctor:--pooling) return ;;
    doctor:--max-length) return ;;
    doctor:--truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    doctor:--precision) return ;;
    doctor:--threads) return ;;
    doctor:--config) compopt -o default 2>/dev/null; return ;;
    doctor:--preset) COMPREPLY=($(compgen -W "cpu gpu latency throughput memory debug max" -- "$word")); return ;;
    version:--format) COMPREPLY=($(compgen -W "text json" -- "$word")); return ;;
    *:--model-id) return ;;
    *:--model-revision) return ;;
    *:--model-level) COMPREPLY=($(compgen -W "low medium high" -- "$word")); return ;;
    *:--model-auto-download) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--model-offline) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--model-cache-dir) compopt -o default 2>/dev/null; return ;;
    *:--model-pooling) COMPREPLY=($(compgen -W "auto cls mean max mean_sqrt_len mean_sqrt_len_tokens weightedmean lasttoken" -- "$word")); return ;;
    *:--model-normalize) COMPREPLY=($(compgen -W "auto true false" -- "$word")); return ;;
    *:--model-prompt-name) return ;;
    *:--model-prompt) return ;;
    *:--model-dimensions) return ;;
    *:--model-max-length) return ;;
    *:--model-truncate) COMPREPLY=($(compgen -W "right left error" -- "$word")); return ;;
    *:--provider-order) COMPREPLY=($(compgen -W "auto cpu cuda gpu tensorrt trt directml dml coreml" -- "$word")); return ;;
    *:--provider-auto-selection) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--provider-hardware-detection) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--provider-fallback) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--provider-engine) COMPREPLY=($(compgen -W "auto native onnxruntime" -- "$word")); return ;;
    *:--provider-devices) COMPREPLY=($(compgen -W "all N" -- "$word")); return ;;
    *:--provider-precision) COMPREPLY=($(compgen -W "auto fp32 fp16 bf16 int16 int8 fp8" -- "$word")); return ;;
    *:--provider-warm-up) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--provider-deterministic) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--cpu-intra-op-threads) return ;;
    *:--cpu-replicas) return ;;
    *:--cpu-inter-op-threads) return ;;
    *:--cpu-parallel-execution) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--cpu-isa) COMPREPLY=($(compgen -W "auto ref avx2 avxvnni avx512 avx512vnni avx512bf16 amx neon neondot" -- "$word")); return ;;
    *:--onnxruntime-library) compopt -o default 2>/dev/null; return ;;
    *:--onnxruntime-graph-optimization-level) return ;;
    *:--onnxruntime-memory-pattern) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--onnxruntime-cpu-arena) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--onnxruntime-arena-strategy) COMPREPLY=($(compgen -W "power_of_two as_requested" -- "$word")); return ;;
    *:--onnxruntime-model) COMPREPLY=($(compgen -W "auto file graph" -- "$word")); return ;;
    *:--tensorrt-cache-dir) compopt -o default 2>/dev/null; return ;;
    *:--coreml-compute-units) COMPREPLY=($(compgen -W "all cpu cpu_and_gpu cpu_and_neural_engine" -- "$word")); return ;;
    *:--cuda-module) return ;;
    *:--cuda-cublaslt) return ;;
    *:--cuda-memory-limit) return ;;
    *:--cuda-streams) return ;;
    *:--cuda-transfer-stream) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--cuda-graphs) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--cuda-memory-pool) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--io-binding) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--io-preallocated) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--io-input-buffers) return ;;
    *:--io-output-buffers) return ;;
    *:--io-zero-copy) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--io-batch-optimization) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--pool-enable) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--pool-max-buffers) return ;;
    *:--pool-max-bytes) return ;;
    *:--pool-pressure-detection) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--pool-pressure-threshold) return ;;
    *:--batch-dynamic) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--batch-min-texts) return ;;
    *:--batch-max-texts) return ;;
    *:--batch-max-tokens) return ;;
    *:--batch-max-wait-ms) return ;;
    *:--batch-target-latency-ms) return ;;
    *:--batch-throughput) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--batch-memory-prediction) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--memory-limit) return ;;
    *:--profile-file) compopt -o default 2>/dev/null; return ;;
    *:--server-models) return ;;
    *:--server-store) return ;;
    *:--server-host) return ;;
    *:--server-port) return ;;
    *:--server-unix-socket) return ;;
    *:--server-api-key-file) compopt -o default 2>/dev/null; return ;;
    *:--server-insecure) COMPREPLY=($(compgen -W "true false" -- "$word")); return ;;
    *:--server-cors-origin) return ;;
    *:--server-max-body) return ;;
    *:--server-max-body-memory) return ;;
    *:--server-max-connections) return ;;
    *:--server-io-threads) return ;;
    *:--server-max-queue-tokens) return ;;
    *:--server-deadline-ms) return ;;
    *:--server-header-seconds) return ;;
    *:--server-body-seconds) return ;;
    *:--server-idle-seconds) return ;;
    *:--server-drain-seconds) return ;;
    *:--server-lame-duck-ms) return ;;
    *:--server-watchdog-seconds) return ;;
    *:--server-log-format) COMPREPLY=($(compgen -W "auto text json" -- "$word")); return ;;
    *:--server-log-level) COMPREPLY=($(compgen -W "error warning info debug" -- "$word")); return ;;
    *:--server-metrics-prefix) return ;;
  esac
  case $command in
    embed) flags="--model --revision --offline --input --input-format --field --output --format --prompt-name --prompt --dimensions --normalize --pooling --dtype --max-length --truncate --precision --threads --similarity --keep-fields --on-error --invalid-utf8 --max-line --stats --stats-json --progress --config --preset --quiet --verbose --help $options" words="" ;;
    serve) flags="--model --revision --offline --host --port --unix-socket --api-key-file --prompt-name --prompt --dimensions --normalize --pooling --max-length --truncate --precision --threads --config --preset --quiet --verbose --help $options" words="" ;;
    tokenize) flags="--model --revision --offline --input --input-format --field --output --format --max-length --truncate --no-special-tokens --keep-fields --on-error --invalid-utf8 --max-line --stats --progress --config --preset --quiet --verbose --help $options" words="" ;;
    decode) flags="--model --revision --offline --input --output --format --skip-special-tokens --on-error --max-line --config --preset --quiet --verbose --help $options" words="" ;;
    model) flags="--model --revision --offline --format --progress --config --preset --quiet --verbose --help $options" words="pull ls path verify rm" ;;
    config) flags="--model --revision --offline --format --prompt-name --prompt --dimensions --normalize --pooling --max-length --truncate --precision --threads --show-origin --config --preset --quiet --verbose --help $options" words="get" ;;
    doctor) flags="--model --revision --offline --format --prompt-name --prompt --dimensions --normalize --pooling --max-length --truncate --precision --threads --config --preset --quiet --verbose --help $options" words="" ;;
    version) flags="--format --help " words="" ;;
    completion) flags="--help " words="bash zsh fish" ;;
    help) flags="--help " words="embed serve tokenize decode model config doctor version completion help options model.id model.revision model.level model.auto_download model.offline model.cache_dir model.pooling model.normalize model.prompt_name model.prompt model.dimensions model.max_length model.truncate provider.order provider.auto_selection provider.hardware_detection provider.fallback provider.engine provider.devices provider.precision provider.warm_up provider.deterministic cpu.intra_op_threads cpu.replicas cpu.inter_op_threads cpu.parallel_execution cpu.isa onnxruntime.library onnxruntime.graph_optimization_level onnxruntime.memory_pattern onnxruntime.cpu_arena onnxruntime.arena_strategy onnxruntime.model tensorrt.cache_dir coreml.compute_units cuda.module cuda.cublaslt cuda.memory_limit cuda.streams cuda.transfer_stream cuda.graphs cuda.memory_pool io.binding io.preallocated io.input_buffers io.output_buffers io.zero_copy io.batch_optimization pool.enable pool.max_buffers pool.max_bytes pool.pressure_detection pool.pressure_threshold batch.dynamic batch.min_texts batch.max_texts batch.max_tokens batch.max_wait_ms batch.target_latency_ms batch.throughput batch.memory_prediction memory.limit profile.file server.models server.store server.host server.port server.unix_socket server.api_key_file server.insecure server.cors_origin server.max_body server.max_body_memory server.max_connections server.io_threads server.max_queue_tokens server.deadline_ms server.header_seconds server.body_seconds server.idle_seconds server.drain_seconds server.lame_duck_ms server.watchdog_seconds server.log_format server.log_level server.metrics_prefix" ;;
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}
complete -F _fletch fletch
