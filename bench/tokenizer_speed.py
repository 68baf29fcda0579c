# SPDX-License-Identifier: Apache-2.0
"""tokenizer_speed.py - MB/s of tokenizer.json files by language: fletch, the reference wheel, and every faster engine on PyPI.

    python bench/tokenizer_speed.py --data DIR [--build build] [--rounds 2] [--output FILE.md] FILE ...   each FILE is a tokenizer.json
    python bench/tokenizer_speed.py --patience [--build build] FILE ...

One thread, processor time, the same texts for all, engines in turns, the best round of each. Ours counts as `token_dump
--time` does; theirs as called from Python on a list of texts. "warm" is the best round, "first" the one in which an engine meets
the texts for the first time, after one other text; of ours also "no cache" (`--cold`), where even repeated words are worked out
again. Opening a file counts the process's time from its name to an engine that is ready. The peers that
this Python has are raced: tokenizers (needed), gigatoken, kitoken, tokie, fastokens, tiktoken, sentencepiece, blingfire. One that cannot
read a file, or gives other ids on more than 1 % of the texts, is named below the table and not in it.

--patience: for each kind of a text of 10 MB, how many milliseconds of the processor pass at most until a tokenizer asks whether
anybody still wants the text: a request whose client has left goes on for so long. With offsets, as /tokenize works, and ids alone.
"""
import collections
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import time

import texts
from harness import arguments, in_turn, where
from report import table

SETS = ["cranfield", "en", "de", "fr", "ru", "zh", "ja"]
PEERS = ["tokenizers", "gigatoken", "kitoken", "tokie", "fastokens", "tiktoken", "sentencepiece", "blingfire"]
BYTES = 200_000  # of a set: the wheel needs a fifth of a second for them
LONG = {"one word": "a", "capitals": "A", "letters of chance": None, "words": "the cat sat. ", "short words": "a ", "spaces": " ", "lines": "\n",
        "brackets": "[", "digits": "7", "beginnings of added tokens": "<", "added tokens": "<s>", "日本": "日本", "日本 with spaces": "日 本 ",
        "marks": "\u0301", "e and a mark": "e\u0301", "Hangul jamo": "\u1112\u1161\u11ab", "ligatures": "\ufb03\ufdfa", "é": "é",
        "emoji": "👩\u200d👧", "capital İ": "İ", "controls": "\x01", "Greek": "Ωμέγα ", "one Å in a word": None}
HOSTILE = {"a word of 10 MB": "a" * 10_000_000, "10 MB of 日本": "日本" * 1_666_667}


def sets(data: pathlib.Path) -> dict[str, list[str]]:
    found = {}
    for name in SETS:
        path = texts.sts_file(data, name)
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

def open_wheel(path, special=True):
    """As people call it, special tokens and all (run.py)."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return (lambda batch: tokenizer.encode_batch_fast(batch, add_special_tokens=special)), lambda one: one.ids


def open_tokenizers(path):
    return open_wheel(path, special=False)


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
    begin = time.process_time()
    encode, ids_of = globals()["open_" + engine](path)
    opening = 1000 * (time.process_time() - begin)
    encode(["0"])
    out = {}
    for name, batch in batches.items():
        size, seconds, found = sum(len(text.encode()) for text in batch), [], []
        for _ in range(3):
            begin = time.process_time()
            found = encode(batch)
            seconds.append(time.process_time() - begin)
        out[name] = [size / min(seconds) / 1e6, size / seconds[0] / 1e6, [hash(tuple(map(int, ids_of(one)))) for one in found]]
    print(json.dumps([opening, out]))


def framed(batch: list[str]) -> bytes:
    """As token_dump reads them."""
    return b"".join(struct.pack("=I", len(text.encode())) + text.encode() for text in batch)


def ours(dump: pathlib.Path, file: str, batch: list[str], *flags: str) -> tuple[float, float, float]:
    """MB/s of the best round and of the first, milliseconds to open the file."""
    done = subprocess.run([dump, "--json", file, "--time", *flags], input=framed(batch), capture_output=True, check=True)
    return tuple(float(re.search(before + r"([0-9.]+)", done.stdout.decode())[1]) for before in ("tokens: ", "first ", "open "))


def theirs(engine: str, file: str, batches: dict) -> list | str:
    alone = os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, __file__, "--work", engine, file], input=json.dumps(batches), capture_output=True,
                          env=alone, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["died"])[-1]


def label(file: str) -> str:
    path = pathlib.Path(file).resolve()
    return path.parent.name if path.name == "tokenizer.json" else path.stem


class Race:
    """Best figures of some rounds by engine: warm and first MB/s by set, milliseconds to open; why a peer is not in it."""

    def __init__(self) -> None:
        self.warm, self.first, self.ids = (collections.defaultdict(dict) for _ in range(3))
        self.opening, self.without = {}, {}

    def take(self, engine: str, name: str, warm: float, first: float) -> None:
        self.warm[engine][name] = max(self.warm[engine].get(name, 0), warm)
        self.first[engine][name] = max(self.first[engine].get(name, 0), first)

    def opened(self, engine: str, milliseconds: float) -> None:
        self.opening[engine] = min(self.opening.get(engine, 1e9), milliseconds)

    def run_ours(self, dump: pathlib.Path, file: str, batches: dict) -> None:
        for name, batch in batches.items():
            warm, first, opening = ours(dump, file, batch)
            self.take("fletch", name, warm, first)
            self.take("no cache", name, *ours(dump, file, batch, "--cold")[:2])
            self.opened("fletch", opening)

    def run_theirs(self, engine: str, file: str, batches: dict) -> None:
        found = theirs(engine, file, batches)
        if isinstance(found, str):
            self.without[engine] = found[:150]
            return
        self.opened(engine, found[0])
        for name, (warm, first, ids) in found[1].items():
            self.take(engine, name, warm, first)
            self.ids[engine][name] = ids

    def drop_others(self) -> None:
        """Engines of other ids are no peers."""
        for engine in [engine for engine in PEERS[1:] if engine in self.ids]:
            pairs = [(a, b) for name, ids in self.ids[engine].items() for a, b in zip(self.ids["tokenizers"][name], ids, strict=True)]
            other = sum(a != b for a, b in pairs)
            if other * 100 > len(pairs):
                speed = self.warm.pop(engine).get("cranfield", 0)
                self.without[engine] = f"other ids in {other} of {len(pairs)} texts; {speed:.1f} MB/s on Cranfield"


def race(dump: pathlib.Path, file: str, batches: dict, rounds: int) -> Race:
    found = Race()
    for turn in range(rounds):
        for engine in in_turn(["fletch", *PEERS], turn):
            if engine == "fletch":
                found.run_ours(dump, file, batches)
            elif engine not in found.without:
                found.run_theirs(engine, file, batches)
    found.drop_others()
    return found


def long_text(name: str, size: int = 10_000_000) -> str:
    if name == "letters of chance":
        chance = random.Random(1)
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=size))
    if name == "one Å in a word":
        return "a" * (size // 2) + "\u212b" + "a" * (size // 2)
    return LONG[name] * (size // len(LONG[name].encode()))


def patience(dump: pathlib.Path, files: list[str]) -> None:
    print(f"{place()}. Milliseconds of the processor for 10 MB / at most between two asks; with offsets, ids alone.\n")
    data, columns = framed([long_text(name) for name in LONG]), []
    for file in files:
        done = subprocess.run([dump, "--json", file, "--patience"], input=data, capture_output=True, check=True, text=False)
        columns.append([list(map(float, line.split())) for line in done.stdout.decode().splitlines()])
    print(*table(("text", *map(label, files)), [
        (name, *(f"{a:.0f}/**{b:.0f}**, {c:.0f}/**{d:.0f}**" for a, b, _, c, d, _ in row)) for name, *row in zip(LONG, *columns, strict=True)]),
        sep="\n")
    print("The most: " + ", ".join(f"{label(file)} {max(max(row[1], row[4]) for row in column):.0f}" for file, column in zip(files, columns)))


def place() -> str:
    busy = os.getloadavg()[0]
    return f"{where()}, load {busy:.1f}" + (" (a loaded machine)" if busy > os.cpu_count() * 0.3 else "")


def section(dump: pathlib.Path, file: str, batches: dict, rounds: int) -> list[str]:
    """What was found of a file."""
    found = race(dump, file, batches, rounds)
    peers, rows = [engine for engine in PEERS if engine in found.warm], []
    for name in batches:
        ours_, *others = (f"{found.warm[engine][name]:.0f}, {found.first[engine][name]:.0f}" for engine in ["fletch", *peers])
        times = [kind["fletch"][name] / max(kind[engine][name] for engine in peers) for kind in (found.warm, found.first)]
        rows.append((name, ours_, f"{found.warm['no cache'][name]:.0f}", *others, f"{times[0]:.1f}, {times[1]:.1f}"))
    opening = [f"{found.opening[engine]:.0f}" for engine in ["fletch", *peers]]
    rows.append(("opening, ms", opening[0], "", *opening[1:], ""))
    hostile = ", ".join(f"{name} {ours(dump, file, [text], '--cold')[0]:.0f} MB/s" for name, text in HOSTILE.items())
    return [f"## {label(file)}", "", *table(("text", "fletch", "no cache", *peers, "times"), rows), f"Hostile, no cache: {hostile}.",
            *(f"- {engine}: {why}" for engine, why in found.without.items()), ""]


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
        return
    parser = arguments(__doc__, "data", "build", rounds=2)
    parser.add_argument("--output", type=pathlib.Path, help="write the tables there too")
    parser.add_argument("files", nargs="+", help="tokenizer.json files")
    parser.add_argument("--patience", action="store_true", help="how long a text goes on that nobody wants any more")
    options = parser.parse_args()
    dump, out, began = options.build / "tests" / "token_dump", [], time.time()
    if options.patience:
        patience(dump, options.files)
        return

    def say(*lines: str) -> None:
        print(*lines, sep="\n", flush=True)
        out.extend(lines)

    batches = sets(options.data)
    say(f"# Tokenizers, {time.strftime('%F')}\n\n{place()}. MB/s of text, one thread, processor time, {options.rounds} rounds in turns: warm, and the "
        "first time that an engine meets the texts. \"No cache\": even repeated words are worked out again. \"Times\" is fletch against the fastest "
        "other, warm and first.\n")
    for file in options.files:
        say(*section(dump, file, batches, options.rounds))
    say(f"{time.time() - began:.0f} s.")
    if options.output:
        options.output.write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
