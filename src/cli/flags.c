/* SPDX-License-Identifier: Apache-2.0 */
/* flags.c - the two tables of the command line: commands and their flags.
 *
 * Role    args.c parses by them, help.c and completion.c print them. A flag with a `key` is a short
 *         form of an option of the option table and sets just that; the others are of the command.
 *         To add a flag, add a row here and, unless it has a key, an id in args.h.
 * Proof   tests/cli/test_cli_usage.py, test_cli_completion.py. */
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "cli/cli.h"

#define ON(command) (1u << FL_CMD_##command)

/* Commands that make results of input; that talk to a server; that open or look up a model; that read the
 * option table. */
#define SCORES        (ON(RERANK) | ON(CLASSIFY))
#define MAKES         (ON(EMBED) | SCORES | ON(TOKENIZE) | ON(DECODE) | ON(CHUNK))
#define ASKS          (ON(HEALTH) | ON(ADD) | ON(SEARCH))
#define READS         (MAKES | ON(ADD))
#define TEXTS         (ON(EMBED) | SCORES | ON(TOKENIZE) | ON(CHUNK))
#define FIELDS        (TEXTS | ON(RUN) | ON(ADD))
#define LOOKS         (ON(CONFIG) | ON(DOCTOR) | ON(BENCH))
#define PROVES        (ON(CANARY) | ON(VERIFY))
#define OPENS         (MAKES | ON(RUN) | ON(SERVE) | ON(MODEL) | LOOKS | PROVES)
#define READS_OPTIONS (OPENS | ASKS)
#define SHAPES        (ON(EMBED) | ON(RUN) | ON(SERVE) | LOOKS | PROVES)
#define LISTENS       (ON(SERVE) | ASKS)
#define ALL           ((1u << FL_CMD_COUNT) - 1)

static const fl_flag flags[] = {
    {FL_FLAG_KEY, 'm', "--model", "ID|DIR|low|medium|high", "model.id", OPENS,
     "Model: a hub id, a folder, or a level."},
    {FL_FLAG_KEY, 0, "--revision", "R", "model.revision", OPENS,
     "Branch, tag or commit of the hub repository."},
    {FL_FLAG_KEY, 0, "--offline", NULL, "model.offline", OPENS, "Never use the network."},
    {FL_FLAG_KEY, 0, "--host", "ADDRESS", "server.host", LISTENS,
     "Address of the server (default: 127.0.0.1)."},
    {FL_FLAG_KEY, 'p', "--port", "N", "server.port", LISTENS,
     "Port of the server (default: 9900); serve takes 0 for any free one."},
    {FL_FLAG_KEY, 0, "--unix-socket", "PATH", "server.unix_socket", LISTENS,
     "Unix socket of the server as well; with --host none only that."},
    {FL_FLAG_KEY, 0, "--models", "DIR|NAME=ID,...|cached", "server.on_demand", ON(SERVE),
     "Models opened when a request names them; those of --model stay open."},
    {FL_FLAG_KEY, 0, "--api-key-file", "FILE", "server.api_key_file",
     ON(SERVE) | ON(ADD) | ON(SEARCH),
     "File of API keys: serve requires one of them; add and search send the first."},
    {FL_FLAG_INPUT, 'i', "--input", "FILE", NULL, READS,
     "Read from FILE, a pattern ('*.txt'), or - for standard input; may be repeated. gzip and zstd "
     "are decompressed."},
    {FL_FLAG_INPUT, 'i', "--input", "FILE|DIR|PATTERN", NULL, ON(RUN),
     "Read FILE, the files below DIR, or those of a pattern ('in/*.txt'); may be repeated. gzip "
     "and zstd are decompressed."},
    {FL_FLAG_INPUT_FORMAT, 0, "--input-format", "lines|jsonl|json|csv|tsv|copy", NULL,
     FIELDS | ON(VERIFY),
     "Format of the input (default: by the file's extension; standard input: lines)."},
    {FL_FLAG_FIELD, 0, "--field", "NAME[,NAME]", NULL, FIELDS | ON(VERIFY),
     "Field of a JSON object (meta.title is nested), or column of a CSV file by name or number, "
     "with the text; several are joined (default: text)."},
    {FL_FLAG_JOIN, 0, "--join", "TEXT", NULL, FIELDS | ON(VERIFY),
     "Separator between joined fields (default: a space)."},
    {FL_FLAG_DELIMITER, 0, "--delimiter", "C", NULL, FIELDS | ON(VERIFY),
     "Column separator of CSV (default: a comma, for TSV a tab)."},
    {FL_FLAG_NO_HEADER, 0, "--no-header", NULL, NULL, FIELDS | ON(VERIFY),
     "CSV or COPY without a header line; --field is a column number (default: 1)."},
    {FL_FLAG_OUTPUT, 'o', "--output", "FILE", NULL, MAKES,
     "Write to FILE, which appears only when it is complete; - is standard output."},
    {FL_FLAG_OUTPUT, 'o', "--output", "DIR", NULL, ON(RUN),
     "Folder of the job: its parts, their manifests and job.json."},
    {FL_FLAG_INPUT, 'i', "--input", "FILE", NULL, ON(VERIFY),
     "The texts of a .npy or .npz file of vectors, in the same order."},
    {FL_FLAG_VECTOR_FIELD, 0, "--vector-field", "NAME", NULL, ON(VERIFY),
     "Field, column or array with the vectors (default: embedding, vector, embeddings or "
     "vectors)."},
    {FL_FLAG_SQL, 0, "--sql", "SELECT", NULL, ON(VERIFY),
     "For an SQLite file: a SELECT of texts and vectors; sqlite-vec tables are read by name."},
    {FL_FLAG_SAMPLE, 0, "--sample", "N", NULL, ON(VERIFY),
     "Compare at most N rows, half from the start and half spread over the rest; 0: all (default: "
     "1000)."},
    {FL_FLAG_EXACT, 0, "--exact", NULL, NULL, ON(VERIFY), "Require identical bytes."},
    {FL_FLAG_RE_EMBED, 0, "--re-embed", "DIR|STORE", NULL, ON(RUN),
     "Re-embed the texts of the job in DIR, or of a server's STORE, with another model or other "
     "settings; the old one is left unchanged."},
    {FL_FLAG_SHARD, 0, "--shard", "I/N", NULL, ON(RUN),
     "Do every N-th part, starting with part I, from 0 (default: 0/1, all parts)."},
    {FL_FLAG_SPLIT_BYTES, 0, "--split-bytes", "SIZE", NULL, ON(RUN),
     "Size of a part of line-based files (default: 32MiB)."},
    {FL_FLAG_CHECK, 0, "--check", NULL, NULL, ON(RUN),
     "Check that every part is present, complete and unmodified; write nothing."},
    {FL_FLAG_QUICK, 0, "--quick", NULL, NULL, ON(RUN), "With --check: compare sizes only."},
    {FL_FLAG_FINISH, 0, "--finish", NULL, NULL, ON(RUN),
     "Check, remove leftovers of killed runs, and write _SUCCESS."},
    {FL_FLAG_MERGE, 0, "--merge", "FILE", NULL, ON(RUN),
     "Join the parts of a finished job into one FILE, in input order."},
    {FL_FLAG_MIXED_ISA, 0, "--mixed-isa", NULL, NULL, ON(RUN),
     "Continue an int8 or bf16 job that another instruction set began; the last bits differ."},
    {FL_FLAG_FORMAT, 0, "--format", "npy|raw|fvecs|jsonl", NULL, ON(RUN),
     "Format of the parts (default: npy)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json|jsonl|npy|npz|raw|fvecs", NULL, ON(EMBED),
     "Format of the output (default: by the file's extension; terminal: text; pipe: jsonl)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json|jsonl", NULL, ON(RERANK) | ON(TOKENIZE) | ON(CHUNK),
     "Format of the output (default: by the file's extension; terminal: text; pipe: jsonl)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json|jsonl|npy|raw", NULL, ON(CLASSIFY),
     "Format of the output (default: by the file's extension; terminal: text; pipe: jsonl)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json|jsonl", NULL, ON(DECODE),
     "Format of the output (default: text, one line per list)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|jsonl", NULL, ON(ADD),
     "text: their number; jsonl: the id of each (default: terminal: text; pipe: jsonl)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json|jsonl", NULL, ON(SEARCH),
     "text, the server's answer, or one result per line (default: terminal: text; pipe: jsonl)."},
    {FL_FLAG_FORMAT, 0, "--format", "text|json", NULL, ON(MODEL) | LOOKS | ON(VERIFY) | ON(VERSION),
     "For people (text) or programs (json)."},
    {FL_FLAG_KEY, 0, "--prompt-name", "N", "model.prompt_name",
     SHAPES | SCORES | ON(ADD) | ON(SEARCH),
     "Prepend the model's prompt of this name to every text."},
    {FL_FLAG_KEY, 0, "--prompt", "P", "model.prompt", SHAPES | SCORES,
     "Prepend this text to every text."},
    {FL_FLAG_KEY, 0, "--dimensions", "D", "model.dimensions", SHAPES,
     "Cut vectors to D dimensions, then normalise again."},
    {FL_FLAG_KEY, 0, "--normalize", "true|false|auto", "model.normalize", SHAPES,
     "Scale vectors to unit length (default: as the folder says)."},
    {FL_FLAG_KEY, 0, "--pooling", "P", "model.pooling", SHAPES,
     "cls, mean, max, ... (default: as the folder says)."},
    {FL_FLAG_OUTPUT_KIND, 0, "--output-kind", "dense|tokens|sparse", NULL, ON(EMBED),
     "One vector per text (default), one per token, or sparse weights (SPLADE, bge-m3)."},
    {FL_FLAG_OUTPUTS, 0, "--outputs", "NAME,...", NULL, ON(EMBED),
     "Several outputs of one pass: dense, dense:256, dense:int8, dense:256:int8, sparse, tokens, "
     "colbert (json and jsonl)."},
    {FL_FLAG_TOP_K, 0, "--top-k", "N", NULL, ON(EMBED),
     "Keep the N largest weights of sparse vectors."},
    {FL_FLAG_THRESHOLD, 0, "--threshold", "W", NULL, ON(EMBED),
     "Keep the weights of at least W of sparse vectors."},
    {FL_FLAG_DTYPE, 0, "--dtype", "float32|float16|int8|uint8|binary|ubinary", NULL,
     ON(EMBED) | ON(RUN), "Element type of the vectors."},
    {FL_FLAG_KEY, 0, "--max-length", "N", "model.max_length", SHAPES | SCORES,
     "Tokens of a text that are used, special tokens included."},
    {FL_FLAG_KEY, 0, "--truncate", "right|left|error", "model.truncate",
     (SHAPES & ~ON(BENCH)) | SCORES, "Which end of a longer text is cut, or error to reject it."},
    {FL_FLAG_MAX_LENGTH, 0, "--max-length", "N", NULL, ON(TOKENIZE),
     "Truncate to N tokens, special tokens included (default: no truncation)."},
    {FL_FLAG_TRUNCATE, 0, "--truncate", "right|left|error", NULL, ON(TOKENIZE),
     "Which end of a text longer than --max-length is cut, or error to reject it."},
    {FL_FLAG_KEY, 0, "--precision", "P", "provider.precision", SHAPES | SCORES,
     "fast, fp32, fp16, bf16, int16, int8 or fp8 arithmetic."},
    {FL_FLAG_KEY, 0, "--threads", "N", "cpu.intra_op_threads", SHAPES | SCORES,
     "Threads (default: the cores this process may use)."},
    {FL_FLAG_SIMILARITY, 0, "--similarity", NULL, NULL, ON(EMBED),
     "Print the cosine similarity of all pairs of at most 64 texts instead of the vectors."},
    {FL_FLAG_NO_SPECIAL_TOKENS, 0, "--no-special-tokens", NULL, NULL, ON(TOKENIZE),
     "Omit the tokens that the model's template adds."},
    {FL_FLAG_BY, 0, "--by", "sentences|tokens|paragraphs|markdown", NULL, ON(CHUNK),
     "Where chunks may be split (default: sentences)."},
    {FL_FLAG_SIZE, 0, "--size", "N", NULL, ON(CHUNK),
     "Tokens per chunk, without special tokens (default: as many as the model accepts)."},
    {FL_FLAG_OVERLAP, 0, "--overlap", "N", NULL, ON(CHUNK),
     "Tokens of whole sentences (or other --by units) that a chunk may repeat from the previous "
     "one (default: 0)."},
    {FL_FLAG_CONTEXT, 0, "--context", "TEMPLATE", NULL, ON(ADD),
     "What is embedded for each text or chunk: '{title}\\n{chunk}' prepends the field title of "
     "--keep-fields."},
    {FL_FLAG_BY, 0, "--chunk", "sentences|tokens|paragraphs|markdown", NULL,
     ON(EMBED) | ON(RUN) | ON(ADD),
     "Split documents into chunks at these boundaries, with a vector and a position for each."},
    {FL_FLAG_SIZE, 0, "--chunk-size", "N", NULL, ON(EMBED) | ON(RUN) | ON(ADD),
     "Tokens per chunk, without special tokens (default: as many as the model accepts)."},
    {FL_FLAG_OVERLAP, 0, "--chunk-overlap", "N", NULL, ON(EMBED) | ON(RUN) | ON(ADD),
     "Tokens of whole sentences (or other --chunk units) that a chunk may repeat from the previous "
     "one."},
    {FL_FLAG_LATE_CHUNKING, 0, "--late-chunking", NULL, NULL, ON(EMBED) | ON(RUN) | ON(ADD),
     "Late chunking: pool the chunks from one pass over the document, so that each carries its "
     "context."},
    {FL_FLAG_PAIR, 0, "--pair", "TEXT", NULL, ON(TOKENIZE) | ON(CLASSIFY),
     "Second text for every text; both form one sequence, as a reranker reads them."},
    {FL_FLAG_PAIR_FIELD, 0, "--pair-field", "NAME", NULL, ON(CLASSIFY),
     "Field of a JSON object, or column of a CSV file, that holds the second text of a pair."},
    {FL_FLAG_LABELS, 0, "--labels", "LABEL[,LABEL]", NULL, ON(CLASSIFY),
     "Your own labels, scored by entailment (zero-shot); needs an NLI model."},
    {FL_FLAG_HYPOTHESIS, 0, "--hypothesis", "TEXT", NULL, ON(CLASSIFY),
     "Hypothesis for a label, with {} in its place (default: This example is {}.)."},
    {FL_FLAG_MULTI_LABEL, 0, "--multi-label", NULL, NULL, ON(CLASSIFY),
     "Several of --labels may apply: each gets an independent probability."},
    {FL_FLAG_QUERY, 0, "--query", "TEXT", NULL, ON(RERANK),
     "What the documents are scored against."},
    {FL_FLAG_TOP, 'k', "--top", "K", NULL, ON(RERANK), "Only the K best (default: all)."},
    {FL_FLAG_ACTIVATION, 0, "--activation", "auto|none|sigmoid|softmax", NULL, SCORES,
     "Activation of the scores (default: as the model says; none: logits)."},
    {FL_FLAG_SKIP_SPECIAL_TOKENS, 0, "--skip-special-tokens", NULL, NULL, ON(DECODE),
     "Omit special tokens such as [CLS]."},
    {FL_FLAG_KEEP_FIELDS, 0, "--keep-fields", NULL, NULL, TEXTS,
     "Copy the other fields of each input object to json and jsonl results."},
    {FL_FLAG_KEEP_FIELDS, 0, "--keep-fields", NULL, NULL, ON(ADD),
     "Keep the other fields of each input object, or columns, as metadata of the text."},
    {FL_FLAG_ID_FIELD, 0, "--id-field", "NAME", NULL, ON(ADD),
     "Field or column that holds the id; a stored text that has it is replaced (default: the "
     "server "
     "makes ids)."},
    {FL_FLAG_TOP_K, 'k', "--top-k", "N", NULL, ON(SEARCH),
     "How many texts, the closest first (default: 10)."},
    {FL_FLAG_FILTER, 0, "--filter", "JSON", NULL, ON(SEARCH),
     "Only texts whose metadata match: '{\"lang\": \"en\"}'."},
    {FL_FLAG_HYBRID, 0, "--hybrid", NULL, NULL, ON(SEARCH),
     "Also search by words (BM25) and fuse both rankings."},
    {FL_FLAG_RERANK, 0, "--rerank", NULL, NULL, ON(SEARCH),
     "Reorder the results with a reranker of the server."},
    {FL_FLAG_RERANK_MODEL, 0, "--rerank-model", "NAME", NULL, ON(SEARCH),
     "Which reranker (default: the server's first)."},
    {FL_FLAG_CANDIDATES, 0, "--candidates", "N", NULL, ON(SEARCH),
     "Candidates of each ranking before fusion, reranking or grouping."},
    {FL_FLAG_GROUP, 0, "--group", NULL, NULL, ON(SEARCH),
     "Return documents instead of texts, each with its best chunks."},
    {FL_FLAG_GROUP_SIZE, 0, "--group-size", "N", NULL, ON(SEARCH),
     "How many chunks per document (default: 3); implies --group."},
    {FL_FLAG_HIGHLIGHT, 0, "--highlight", "passage|words", NULL, ON(SEARCH),
     "Show the passage of each text closest to TEXT, or where its words are."},
    {FL_FLAG_KEEP_TEXT, 0, "--keep-text", NULL, NULL, TEXTS & ~ON(CHUNK),
     "Include the text in json and jsonl results."},
    {FL_FLAG_ID_FIELD, 0, "--id-field", "NAME", NULL, ON(RUN),
     "Field of a JSON object, or column of a CSV file, that names the text in the results."},
    {FL_FLAG_KEEP_FIELDS, 0, "--keep-fields", NULL, NULL, ON(RUN),
     "Copy the other fields of each input object to the rows of the parts."},
    {FL_FLAG_KEEP_TEXT, 0, "--keep-text", NULL, NULL, ON(RUN),
     "Include the text in the rows of the parts."},
    {FL_FLAG_ON_ERROR, 0, "--on-error", "skip|accept|stop", NULL, ON(RUN),
     "A rejected input is reported and skipped (default, exit code 4; accept: 0), or stops the "
     "run."},
    {FL_FLAG_ON_ERROR, 0, "--on-error", "stop|skip", NULL, READS,
     "A rejected input stops the run (default), or is reported and skipped (exit code 4)."},
    {FL_FLAG_INVALID_UTF8, 0, "--invalid-utf8", "error|replace", NULL, FIELDS | ON(VERIFY),
     "Text that is not UTF-8 is rejected (default), or repaired with U+FFFD."},
    {FL_FLAG_MAX_LINE, 0, "--max-line", "SIZE", NULL, READS | ON(RUN) | ON(VERIFY),
     "Longest input line, item or record in bytes (default: 256MiB)."},
    {FL_FLAG_PARTIAL, 0, "--partial", NULL, NULL,
     ON(EMBED) | ON(CLASSIFY) | ON(TOKENIZE) | ON(CHUNK),
     "Keep the results so far of a run that fails or is interrupted."},
    {FL_FLAG_STATS, 0, "--stats", NULL, NULL, TEXTS,
     "Print counts, rates, times, memory and what the engine did to standard error at the end."},
    {FL_FLAG_STATS_JSON, 0, "--stats-json", "FILE", NULL, ON(EMBED),
     "Write all statistics of the run to FILE as one JSON object."},
    {FL_FLAG_PROGRESS, 0, "--progress", "auto|always|never", NULL, FIELDS | ON(MODEL),
     "Progress on standard error (default: auto, only on a terminal)."},
    {FL_FLAG_TYPE, 0, "--type", "F32|F16|BF16|Q8_0|Q5_1|Q5_0|Q4_1|Q4_0", NULL, ON(MODEL),
     "convert: what the matrices become (default: Q8_0)."},
    {FL_FLAG_FORCE, 0, "--force", NULL, NULL, ON(MODEL), "convert: replace OUT if it exists."},
    {FL_FLAG_SECONDS, 0, "--seconds", "N", NULL, ON(BENCH), "How long to measure (default: 10)."},
    {FL_FLAG_SHOW_ORIGIN, 0, "--show-origin", NULL, NULL, ON(CONFIG),
     "Print where each value came from."},
    {FL_FLAG_REPORT, 0, "--report", NULL, NULL, ON(DOCTOR),
     "A report to attach to a bug: adds system and compiler, omits home paths."},
    {FL_FLAG_CONFIG, 0, "--config", "FILE", NULL, READS_OPTIONS,
     "Read options from a TOML file (default: the file FLETCH_CONFIG names)."},
    {FL_FLAG_APP_CONFIG, 0, "--app-config", "FILE", NULL, READS_OPTIONS,
     "Read the [ai] section of another program's TOML file; the rest is ignored."},
    {FL_FLAG_PRESET, 0, "--preset", "cpu|gpu|latency|throughput|memory|debug|max", NULL, OPENS,
     "Start from a named set of options."},
    {FL_FLAG_QUIET, 'q', "--quiet", NULL, NULL, READS_OPTIONS,
     "Errors only: no notes, no progress."},
    {FL_FLAG_VERBOSE, 'v', "--verbose", NULL, NULL, READS_OPTIONS,
     "Also print the library's log; -vv: every batch too."},
    {FL_FLAG_HELP, 'h', "--help", NULL, NULL, ALL, "Print this help."},
};

static const fl_command commands[] = {
    {FL_CMD_EMBED, true, "embed", "[TEXT ...]", NULL, "Turn texts into vectors.",
     "Texts come from the arguments, else from --input FILE, else (and for -) from standard "
     "input.\nThere is one result per input, in input order; memory stays flat regardless of the "
     "input's length.\nThe first use of a model downloads it into the Hugging Face cache.\n",
     "  fletch embed \"A cat sits on the mat.\"\n"
     "  fletch embed --similarity \"A cat sits.\" \"A feline rests.\" \"Stocks fell.\"\n"
     "  fletch embed -i texts.txt -o vectors.npy --stats\n"
     "  fletch embed -i docs.jsonl --field body --keep-fields -o docs.vectors.jsonl\n"
     "  fletch embed --output-kind tokens -i texts.txt -o tokens.npz\n"
     "  fletch embed --output-kind sparse -m naver/splade-v3 -i texts.txt -o weights.npz\n"
     "  fletch embed --chunk sentences --chunk-size 256 --late-chunking -i docs.jsonl -o "
     "chunks.npz\n"
     "  fletch embed -i 'parts/*.txt.gz' --format raw -o big.f32 --on-error skip --partial\n",
     fl_cmd_embed},
    {FL_CMD_RERANK, true, "rerank", "--query TEXT [FILE ... | TEXT ...]", NULL,
     "Order documents by how well they answer a query.",
     "Needs a reranker: a cross-encoder, which reads query and document together, with one label. "
     "The\nbest comes first. Arguments that name files are read, as with --input; after -- "
     "every\nargument is a document. Input is that of embed.\n",
     "  fletch rerank -m cross-encoder/ms-marco-MiniLM-L6-v2 --query \"who sat?\" \"A cat sat.\" "
     "\"It rains.\"\n"
     "  fletch rerank --query \"refunds\" --top 5 docs.txt\n"
     "  fletch rerank --query \"refunds\" -k 5 --keep-fields docs.jsonl --format jsonl\n",
     fl_cmd_scores},
    {FL_CMD_CLASSIFY, true, "classify", "[TEXT ...]", NULL,
     "Score texts, or pairs of texts, by the labels of a classifier.",
     "Needs a model with a classification head. There is one result per input, in input order: the "
     "best\nlabel and the scores of all. Input is that of embed; --pair or --pair-field makes "
     "pairs. --labels\ntakes your own labels, with an NLI model.\n",
     "  fletch classify -m SamLowe/roberta-base-go_emotions \"What a day!\"\n"
     "  fletch classify -i reviews.jsonl --field body --activation softmax -o labels.jsonl\n"
     "  fletch classify -m MoritzLaurer/ModernBERT-base-zeroshot-v2.0 --labels \"travel,food\" "
     "-i posts.txt\n"
     "  fletch classify -i pairs.csv --field premise --pair-field hypothesis --format npy -o "
     "s.npy\n",
     fl_cmd_scores},
    {FL_CMD_RUN, true, "run", "", NULL, "Embed files as a resumable job.",
     "The input is split into parts. Each part appears under its name when it is complete, with "
     "a\nmanifest; rerunning the command does what is missing and nothing twice. Shards let "
     "several processes\nor machines share a job without talking to each other. docs/job.md is the "
     "contract.\nExit code 0: all parts of the shard are done; 1: retry; 2, 3: retrying does not "
     "help;\n4: done, but some inputs were rejected.\n",
     "  fletch run -i texts/ -o vectors/\n"
     "  fletch run -i 'docs/*.jsonl.gz' --field body --id-field id -o vectors/ --dtype int8\n"
     "  fletch run -i texts/ -o vectors/ --shard 3/16\n"
     "  fletch run --re-embed vectors/ -o vectors2/ -m ./new-model\n"
     "  fletch run --re-embed store.db -o store2.db -m ./new-model\n"
     "  fletch run -o vectors/ --check --finish\n"
     "  fletch run -o vectors/ --merge vectors.npy\n",
     fl_cmd_run},
    {FL_CMD_SERVE, true, "serve", "", NULL, "Answer embedding requests over HTTP.",
     "One process that speaks the routes of OpenAI, text-embeddings-inference, Ollama and "
     "Cohere.\n--model may be given more than once, also as NAME=ID: clients then choose by "
     "name.\nSIGTERM drains and exits, as does closing the terminal; SIGHUP reads API keys and log "
     "level\nagain. docs/server.md has more.\n",
     "  fletch serve\n"
     "  fletch serve --port 0 --model high\n"
     "  fletch serve --model small=low --model large=high\n"
     "  fletch serve --host 0.0.0.0 --api-key-file /etc/fletch/keys\n"
     "  curl -s 127.0.0.1:9900/embed -d '{\"inputs\":\"A cat sits on the mat.\"}' \\\n"
     "       -H 'content-type: application/json'\n",
     fl_cmd_serve},
    {FL_CMD_HEALTH, true, "health", "", NULL, "Check whether a running server is ready.",
     "For the health checks of containers and supervisors without curl. It finds the server by "
     "the\nsame options, variables and files as serve. Exit code 0: ready; 1: not ready or not "
     "running.\n",
     "  fletch health\n"
     "  fletch health --port 9901\n"
     "  fletch health --host none --unix-socket /run/fletch.sock\n",
     fl_cmd_health},
    {FL_CMD_ADD, true, "add", "[FILE ... | TEXT ...]", NULL,
     "Add texts to a running server's store.",
     "The server of `fletch serve` embeds the texts and keeps them, in memory or, "
     "with\n--server-store FILE, in a file. Arguments that name files are read, as with "
     "--input;\nafter -- every argument is a text. Input is that of embed.\n",
     "  fletch add \"A cat sits on the mat.\" \"Stocks fell on Monday.\"\n"
     "  fletch add notes.txt\n"
     "  fletch add docs.jsonl --field body --id-field id --keep-fields\n"
     "  fletch add docs.jsonl --id-field id --keep-fields --size 256 --context "
     "'{title}\\n{chunk}'\n"
     "  fletch add --host 10.0.0.7 --api-key-file ~/.fletch-key notes.txt\n",
     fl_cmd_add},
    {FL_CMD_SEARCH, true, "search", "TEXT", NULL, "Find stored texts by their meaning.",
     "Asks the store of a running server, which `fletch add` and POST /add fill. Scores are "
     "cosines,\n"
     "with --hybrid sums of reciprocal ranks, with --rerank those of the reranker.\n",
     "  fletch search \"feline\"\n"
     "  fletch search -k 3 --filter '{\"lang\": \"en\"}' \"how do I get my money back\"\n"
     "  fletch search --hybrid --rerank --group --highlight passage \"refunds\"\n"
     "  fletch search --format jsonl \"feline\" | jq -r .text\n",
     fl_cmd_search},
    {FL_CMD_TOKENIZE, true, "tokenize", "[TEXT ...]", NULL, "Turn texts into token ids.",
     "Input as for embed. A result holds the ids, the tokens, their byte offsets in the text, "
     "which\nof them the template added, and whether the text was truncated. With --pair it also "
     "says where\nthe second text's tokens and the tokens of type 1 begin. No weights are read.\n",
     "  fletch tokenize \"unbelievable\"\n"
     "  fletch tokenize --format jsonl -i texts.txt -o tokens.jsonl\n"
     "  fletch tokenize --no-special-tokens --max-length 16 \"a long text\"\n"
     "  fletch tokenize --pair \"a document\" \"a query\"\n",
     fl_cmd_tokenize},
    {FL_CMD_DECODE, true, "decode", "[IDS ...]", NULL, "Turn token ids back into text.",
     "Ids come from the arguments, as one list or as JSON lists, else from --input or standard "
     "input,\none JSON list (or one result of tokenize) per line.\n",
     "  fletch decode 101 7592 2088 102\n"
     "  fletch decode --skip-special-tokens \"[101, 7592, 2088, 102]\"\n"
     "  fletch tokenize \"hello world\" | fletch decode\n",
     fl_cmd_decode},
    {FL_CMD_CHUNK, true, "chunk", "[TEXT ...]", NULL,
     "Split documents into chunks that fit the model.",
     "Input as for embed, a document each (--input-format jsonl, json or csv for documents of "
     "several\nlines). There is one result per chunk: its number in the document, its position, "
     "its tokens and\nits text. Chunks hold as many sentences, or other --by units, as fit; "
     "without --overlap their\nconcatenation is the document. No weights are read. docs/chunks.md "
     "has more.\n",
     "  fletch chunk --size 256 -i docs.jsonl --field body -o chunks.jsonl\n"
     "  fletch chunk --by markdown --size 512 --overlap 64 -i docs.jsonl\n"
     "  fletch chunk --by tokens --size 8 --format text \"A cat sits on the mat. It purrs.\"\n",
     fl_cmd_chunk},
    {FL_CMD_MODEL, true, "model", "pull|ls|path|verify|id|rm|convert [ID] [OUT]",
     "pull|ls|path|verify|id|rm|convert",
     "Download, list, check, identify, remove and convert models.",
     "pull [ID]     download a model (and an adapter's base) to the cache; print its folder\nls    "
     "        list the cached models\npath [ID]     print the folder of a cached model\nverify "
     "[ID]   check every file of a cached model against its hash\nid [ID]       print the vector "
     "id: equal ids, equal bytes (--format json: its parts)\nrm ID         remove a model from the "
     "cache\nconvert IN OUT.gguf\n              write a model (a hub id, a folder or a GGUF file) "
     "as one GGUF file, which\n              llama.cpp and Ollama open too; what GGUF cannot "
     "express is rejected\nID is a hub id, a level (low, medium, high), or ID@REVISION; none means "
     "the configured model.\nThe cache is the one huggingface_hub uses (HF_HOME, HF_HUB_CACHE).\n",
     "  fletch model pull\n"
     "  fletch model pull sentence-transformers/all-mpnet-base-v2\n"
     "  fletch model ls --format json\n"
     "  fletch model rm high\n"
     "  fletch model convert Qwen/Qwen3-Embedding-0.6B qwen3.gguf --type Q8_0\n"
     "  fletch embed -m qwen3.gguf \"a text\"\n",
     fl_cmd_model},
    {FL_CMD_CANARY, true, "canary", "", NULL,
     "Write reference vectors of a few texts, to compare others with.",
     "Keep the file beside stored vectors: fletch verify uses it to tell whether another "
     "machine,\nversion or model gives the same ones. It names the model's files and the settings "
     "that matter.\n",
     "  fletch canary > canary.json\n"
     "  fletch canary -m ./my-model --precision int8 > canary.json\n",
     fl_cmd_canary},
    {FL_CMD_VERIFY, true, "verify", "FILE", NULL,
     "Check whether stored vectors are still those of a model.",
     "Embeds the texts of FILE again and compares: same bytes, same space (all within 1e-5) "
     "or\nanother space; then which parts of model and settings differ, if FILE has them. FILE is "
     "one of\n  canary.json       what fletch canary wrote\n  DIR               the folder of a "
     "fletch run\n  x.npy, x.npz      vectors, with --input FILE for the texts\n  x.jsonl, x.json  "
     " objects with a text and a vector, or what Chroma's get() gives\n  x.csv, x.tsv      "
     "columns; a vector is \"[0.1,0.2]\", as pgvector writes it\n  x.sql             a dump of "
     "PostgreSQL, with its COPY lines\n  x.db              SQLite: the server's store, tables of "
     "sqlite-vec, any SELECT (--sql)\nParquet is read by python -m fletch.verify. For many rows a "
     "sample is compared.\nExit code 0: same bytes or space; 1: another space, or with --exact "
     "other bytes; 3: FILE or the\nmodel cannot be read.\n",
     "  fletch verify canary.json\n"
     "  fletch verify --exact -m ./my-model canary.json\n"
     "  fletch verify items.csv --field content --vector-field embedding\n"
     "  fletch verify vectors.npy --input texts.txt\n"
     "  fletch verify store.db --sample 0 --format json\n"
     "  fletch verify rag.db --sql \"SELECT d.text, v.embedding FROM docs d JOIN vec v ON v.rowid "
     "= d.id\"\n",
     fl_cmd_verify},
    {FL_CMD_CONFIG, true, "config", "[get KEY]", "get",
     "Print the configuration and where it comes from.",
     "Without arguments prints all options as TOML, as set by flags, environment, file and "
     "defaults.\n get KEY prints one value. With --preset NAME alone, prints what the preset "
     "sets.\n",
     "  fletch config --show-origin\n"
     "  fletch config get cpu.intra_op_threads\n"
     "  fletch config --preset latency > latency.toml\n"
     "  FLETCH_PROVIDER_ORDER=cpu fletch config --show-origin\n",
     fl_cmd_config},
    {FL_CMD_DOCTOR, true, "doctor", "", NULL, "Inspect and test the machine and the model.",
     "Prints the hardware, the instruction set and why, which providers are usable or why not, "
     "how\nthe model is resolved, and compares vectors with published ones. Downloads "
     "nothing.\nExit code 0: all is well; 1: the self-test failed; 3: the model is missing.\n",
     "  fletch doctor\n"
     "  fletch doctor -m ./my-model --format json\n"
     "  fletch doctor --report > report.txt\n",
     fl_cmd_doctor},
    {FL_CMD_BENCH, true, "bench", "", NULL, "Measure how fast the model runs here.",
     "Texts of 16, 64 and 256 tokens, a single text, and the share of the processor's peak "
     "that\nis. Nothing else should run at the same time. bench/ in the sources compares other "
     "programs.\n",
     "  fletch bench\n"
     "  fletch bench -m ./my-model --precision int8 --threads 1\n"
     "  fletch bench --seconds 30 --format json\n",
     fl_cmd_bench},
    {FL_CMD_VERSION, false, "version", "", NULL, "Print the version.", "",
     "  fletch version\n"
     "  fletch version --format json\n",
     fl_cmd_version},
    {FL_CMD_COMPLETION, false, "completion", "bash|zsh|fish", "bash|zsh|fish",
     "Print a shell completion script.", "The script is made from the same tables as this help.\n",
     "  fletch completion bash > ~/.local/share/bash-completion/completions/fletch\n"
     "  fletch completion zsh > \"${fpath[1]}/_fletch\"\n"
     "  fletch completion fish > ~/.config/fish/completions/fletch.fish\n",
     fl_cmd_completion},
    {FL_CMD_HELP, false, "help", "[COMMAND | options | KEY]", NULL, "Print help.",
     "help options lists every option with its flag, environment variable, default and bounds; "
     "help\n"
     "KEY explains one of them.\n",
     "  fletch help embed\n"
     "  fletch help options\n"
     "  fletch help provider.order\n",
     fl_cmd_help},
};

const fl_command *fl_command_at(size_t index) {
    return index < sizeof commands / sizeof commands[0] ? &commands[index] : NULL;
}

const fl_command *fl_command_find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* Words that other programs have for what is here called otherwise, where the spelling leads astray:
 * "encode" is two letters from decode and means embed. */
static const struct {
    const char *word, *meant;
} other_words[] = {
    {"encode", "embed"},
    {"embedding", "embed"},
    {"embeddings", "embed"},
    {"vectorize", "embed"},
    {"vectorise", "embed"},
    {"infer", "embed"},
    {"similarity", "embed --similarity"},
    {"compare", "embed --similarity"},
    {"rank", "rerank"},
    {"score", "rerank"},
    {"predict", "classify"},
    {"index", "add"},
    {"insert", "add"},
    {"upsert", "add"},
    {"query", "search"},
    {"find", "search"},
    {"tokens", "tokenize"},
    {"tokenise", "tokenize"},
    {"detokenize", "decode"},
    {"split", "chunk"},
    {"start", "serve"},
    {"job", "run"},
    {"batch", "run"},
    {"daemon", "serve"},
    {"pull", "model pull"},
    {"download", "model pull"},
    {"fetch", "model pull"},
    {"list", "model ls"},
    {"ls", "model ls"},
    {"models", "model ls"},
    {"rm", "model rm"},
    {"remove", "model rm"},
    {"convert", "model convert"},
    {"quantize", "model convert"},
    {"quantise", "model convert"},
    {"check", "doctor"},
    {"healthcheck", "health"},
    {"ready", "health"},
    {"ping", "health"},
    {"info", "doctor"},
    {"devices", "doctor"},
    {"options", "help options"},
    {"settings", "config"},
};

const char *fl_command_suggest(const char *word) {
    fl_nearest nearest = fl_nearest_start(word);
    for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++)
        if (strcasecmp(word, other_words[i].word) == 0)
            return other_words[i].meant;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fl_nearest_see(&nearest, commands[i].name);
    return nearest.name;
}

const fl_flag *fl_flag_at(size_t index) {
    return index < sizeof flags / sizeof flags[0] ? &flags[index] : NULL;
}
