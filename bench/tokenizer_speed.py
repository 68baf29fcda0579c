# SPDX-License-Identifier: Apache-2.0
"""tokenizer_speed.py - MB/s of tokenizer.json files by language: fletch, the reference wheel, and every faster engine on PyPI.

    python bench/tokenizer_speed.py --data DIR [--build build] [--rounds 2] [--output FILE.md] FILE ...   each FILE is a tokenizer.json
    python bench/tokenizer_speed.py --patience [--build build] FILE ...

One thread, processor time, the same texts for all, engines in turns, the best round of each. Ours counts as `token_dump
--time` does, warm and without cache hits (`--cold`); theirs as called from Python on a list of texts, after a round to warm up. The peers that
this Python has are raced: tokenizers (needed), gigatoken, kitoken, tokie, fastokens, tiktoken, sentencepiece, blingfire. One that cannot
read a file, or gives other ids on more than 1 % of the texts, is named below the table and not in it.

--patience: for each kind of a text of 10 MB, how many milliseconds of the processor pass at most until a tokenizer asks whether
anybody still wants the text: a request whose client has left goes on for so long. With offsets, as /tokenize works, and ids alone.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))

SETS = ["cranfield", "en", "de", "fr", "ru", "zh", "ja"]
PEERS = ["tokenizers", "gigatoken", "kitoken", "tokie", "fastokens", "tiktoken", "sentencepiece", "blingfire"]
BYTES = 200_000  # of a set: the wheel needs a fifth of a second for them
LONG = {"one word": "a", "capitals": "A", "letters of chance": None, "words": "the cat sat. ", "short words": "a ", "spaces": " ", "lines": "\n",
        "brackets": "[", "digits": "7", "beginnings of added tokens": "<", "added tokens": "<s>", "日本": "日本", "日本 with spaces": "日 本 ",
        "marks": "\u0301", "e and a mark": "e\u0301", "Hangul jamo": "\u1112\u1161\u11ab", "ligatures": "\ufb03\ufdfa", "é": "é",
        "emoji": "👩\u200d👧", "capital İ": "İ", "controls": "\x01", "Greek": "Ωμέγα ", "one Å in a word": None}
HOSTILE = {"a word of 10 MB": "a" * 10_000_000, "10 MB of 日本": "日本" * 1_666_667}


def sets(data: pathlib.Path) -> dict[str, list[str]]:
    import texts
    found = {}
    for name in SETS:
        path = next((path for part in ("train", "dev") if (path := data / f"stsb-{name}-{part}.jsonl").is_file()), None)
        batch = texts.abstracts(data) if name == "cranfield" else texts.sentences(path) if path else []
        size, kept = 0, []
        for text in batch[::max(1, len(batch) // 3000)]:
            if size < BYTES:
                kept.append(text)
                size += len(text.encode())
        if kept:
            found[name] = kept
    return found


# ---- The engines: a function from a list of texts to lists of ids, without special tokens ----

def open_tokenizers(path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return (lambda batch: tokenizer.encode_batch_fast(batch, add_special_tokens=False)), lambda one: one.ids


def open_gigatoken(path):
    import gigatoken
    return gigatoken.Tokenizer(path).encode_batch_list, list


def open_kitoken(path):
    import kitoken
    return kitoken.Kitoken.from_tokenizers_file(path).encode_all, list


def open_tokie(path):
    import tokie
    tokenizer = tokie.Tokenizer.from_json(path)
    return (lambda batch: tokenizer.encode_batch(batch, add_special_tokens=False)), lambda one: one.ids


def open_fastokens(path):
    import fastokens
    tokenizer = fastokens.Tokenizer.from_file(path)
    return (lambda batch: tokenizer.encode_batch(batch, add_special_tokens=False)), lambda one: one.ids


def open_tiktoken(path):
    """A byte-level vocabulary whose ids are its ranks, as OpenAI's are, and a pattern that is the file's or GPT-2's."""
    import tiktoken
    tree = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if tree["model"].get("type", "BPE") != "BPE" or "ByteLevel" not in json.dumps(tree["pre_tokenizer"]) or tree["normalizer"]:
        raise ValueError("no byte-level BPE without a normaliser")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
    ranks = {bytes(byte_of[c] for c in token): index for token, index in tree["model"]["vocab"].items()
             if all(c in byte_of for c in token)}
    steps = tree["pre_tokenizer"].get("pretokenizers", [tree["pre_tokenizer"]])
    pattern = next((step["pattern"]["Regex"] for step in steps if step["type"] == "Split"),
                   r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s")
    encoding = tiktoken.Encoding("it", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return (lambda batch: [encoding.encode_ordinary(text) for text in batch]), list


def open_sentencepiece(path):
    """The same pieces, scores and map as a SentencePiece model; its ids are the file's."""
    import base64
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto
    tree = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    normal = tree["normalizer"] or {}
    if tree["model"].get("type") != "Unigram" or normal.get("type") != "Precompiled":
        raise ValueError("no Unigram with a Precompiled map")
    model = proto.ModelProto()
    for index, (piece, score) in enumerate(tree["model"]["vocab"]):
        kind = 2 if index == tree["model"]["unk_id"] else 3 if score == 0 else 1
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM
    model.trainer_spec.unk_id = tree["model"]["unk_id"]
    model.normalizer_spec.precompiled_charsmap = base64.b64decode(normal["precompiled_charsmap"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return (lambda batch: processor.encode(batch, num_threads=1)), list


def open_blingfire(path):
    import blingfire
    if "<mask>" not in (text := pathlib.Path(path).read_text(encoding="utf-8")) or '"Unigram"' not in text:
        raise ValueError("its XLM-R is compiled in")
    handle = blingfire.load_model(str(pathlib.Path(blingfire.__file__).parent / "xlm_roberta_base.bin"))
    return (lambda batch: [blingfire.text_to_ids(handle, text, len(text) + 2, 3, True) for text in batch]), list


def work(engine: str, path: str) -> None:
    """In a process of its own: the module and its threads are alone."""
    batches = json.load(sys.stdin)
    encode, ids_of = globals()["open_" + engine](path)
    out = {}
    for name, batch in batches.items():
        size, best = sum(len(text.encode()) for text in batch), 1e9
        ids = [hash(tuple(map(int, ids_of(one)))) for one in encode(batch)]
        for _ in range(2):
            begin = time.process_time()
            encode(batch)
            best = min(best, time.process_time() - begin)
        out[name] = [size / best / 1e6, ids]
    print(json.dumps(out))


def ours(dump: pathlib.Path, file: str, batch: list[str], *flags: str) -> float:
    data = b"".join(struct.pack("=I", len(text.encode())) + text.encode() for text in batch)
    done = subprocess.run([dump, "--json", file, "--time", *flags], input=data, capture_output=True, check=True)
    return float(done.stdout.decode().split(": ")[1].split(" ")[0])


def theirs(engine: str, file: str, batches: dict) -> dict | str:
    alone = os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, __file__, "--work", engine, file], input=json.dumps(batches), capture_output=True,
                          env=alone, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["died"])[-1]


def label(file: str) -> str:
    path = pathlib.Path(file).resolve()
    return path.parent.name if path.name == "tokenizer.json" else path.stem


def race(dump: pathlib.Path, file: str, batches: dict, rounds: int):
    """Best MB/s by engine and set; why a peer is not in it."""
    best, without = collections.defaultdict(lambda: collections.defaultdict(float)), {}
    for turn in range(rounds):
        for engine in ["fletch", *PEERS][::1 if turn % 2 == 0 else -1]:
            if engine in without:
                continue
            if engine == "fletch":
                found = {name: [ours(dump, file, batch), []] for name, batch in batches.items()}
                for name, batch in batches.items():
                    best["fletch cold"][name] = max(best["fletch cold"][name], ours(dump, file, batch, "--cold"))
            else:
                found = theirs(engine, file, batches)
            if isinstance(found, str):
                without[engine] = found[:150]
                continue
            for name, (speed, ids) in found.items():
                best[engine][name] = max(best[engine][name], speed)
                best[engine, "ids"][name] = ids
    for engine in PEERS[1:]:
        pairs = [(a, b) for name in batches if engine in best
                 for a, b in zip(best["tokenizers", "ids"][name], best[engine, "ids"][name], strict=True)]
        other = sum(a != b for a, b in pairs)
        if other * 100 > len(pairs):
            without[engine] = f"other ids in {other} of {len(pairs)} texts; {best[engine]['cranfield']:.1f} MB/s on Cranfield"
            del best[engine]
    return best, without


def long_text(name: str, size: int = 10_000_000) -> str:
    if name == "letters of chance":
        chance = random.Random(1)
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=size))
    if name == "one Å in a word":
        return "a" * (size // 2) + "\u212b" + "a" * (size // 2)
    return LONG[name] * (size // len(LONG[name].encode()))


def patience(dump: pathlib.Path, files: list[str]) -> None:
    texts = [long_text(name).encode() for name in LONG]
    data = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    print(f"{machine()}. Milliseconds of the processor for 10 MB / at most between two asks; with offsets, ids alone.\n")
    print("| text | " + " | ".join(map(label, files)) + " |\n|" + "---|" * (len(files) + 1), flush=True)
    columns = []
    for file in files:
        done = subprocess.run([dump, "--json", file, "--patience"], input=data, capture_output=True, check=True, text=False)
        columns.append([list(map(float, line.split())) for line in done.stdout.decode().splitlines()])
    for name, *row in zip(LONG, *columns, strict=True):
        print(f"| {name} | " + " | ".join(f"{a:.0f}/**{b:.0f}**, {c:.0f}/**{d:.0f}**" for a, b, _, c, d, _ in row) + " |")
    print("\nThe most: " + ", ".join(f"{label(file)} {max(max(row[1], row[4]) for row in column):.0f}" for file, column in zip(files, columns)))


def machine() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "a processor")
    busy = os.getloadavg()[0]
    return f"{name}, {os.cpu_count()} processors, load {busy:.1f}" + (" (a loaded machine)" if busy > os.cpu_count() * 0.3 else "")


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("FLETCH_TEST_DATA"), help="folder of the text sets")
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, help="write the tables there too")
    parser.add_argument("files", nargs="+", help="tokenizer.json files")
    parser.add_argument("--patience", action="store_true", help="how long a text goes on that nobody wants any more")
    options = parser.parse_args()
    dump, out, began = options.build / "tests" / "token_dump", [], time.time()
    if options.patience:
        patience(dump, options.files)
        return

    def say(line: str) -> None:
        print(line, flush=True)
        out.append(line)

    batches = sets(options.data)
    say(f"# Tokenizers, {time.strftime('%F')}\n\n{machine()}. MB/s of text, one thread, processor time, {options.rounds} rounds in turns. \"Cold\" is "
        "without cache hits; \"times\" is fletch against the fastest other, and against the wheel.\n")
    for file in options.files:
        best, without = race(dump, file, batches, options.rounds)
        peers = [engine for engine in PEERS if engine in best]
        say(f"## {label(file)}\n\n| text | fletch | cold | " + " | ".join(peers) + " | times | the wheel |\n|" + "---|" * (len(peers) + 5))
        for name in batches:
            row = [best[engine][name] for engine in peers]
            mine = best["fletch"][name]
            say(f"| {name} | {mine:.0f} | {best['fletch cold'][name]:.0f} | " + " | ".join(f"{speed:.1f}" for speed in row) +
                f" | {mine / max(row):.1f} | {mine / best['tokenizers'][name]:.0f} |")
        say("\nHostile, cold: " + ", ".join(f"{name} {ours(dump, file, [text], '--cold'):.0f} MB/s" for name, text in HOSTILE.items()) + ".")
        for engine, why in without.items():
            say(f"- {engine}: {why}")
        say("")
    say(f"{time.time() - began:.0f} s.")
    if options.output:
        options.output.write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
