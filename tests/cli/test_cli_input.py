# SPDX-License-Identifier: Apache-2.0
"""Every form of input gives the same texts in the same order, in flat memory; bad input is named by its place.

The special tokens are left out where a test counts tokens, and `tokenize` stands in for `embed` where only the
reading matters: it reads through the same code without the weights."""
import csv
import json
import select
import shutil
import subprocess
import sys

import jobs
import pytest
from commandline import BIN, WAIT, environment, peak_mb

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer

TEXTS = ["A cat sits.", "", " two  spaces ", "Grüße 日本語 🙂", 'quotes " and, commas', "tab\there"]


def ids(fletch, *arguments, **options):
    return [row["ids"] for row in fletch.rows("tokenize", "--no-special-tokens", *arguments, **options)]


@pytest.fixture
def expected(fletch):
    return ids(fletch, "--", *TEXTS)


def test_lines(fletch, expected, tmp_path):
    data = "".join(text + "\n" for text in TEXTS)
    (tmp_path / "in.txt").write_text(data)
    assert ids(fletch, input=data) == expected
    assert ids(fletch, "--input", "-", input=data) == expected
    assert ids(fletch, "-i", "in.txt") == expected


def test_line_ends_bom_and_last_line(fletch, expected):
    assert ids(fletch, input="\r\n".join(TEXTS)) == expected
    assert ids(fletch, input="\ufeff" + "\n".join(TEXTS)) == expected
    assert ids(fletch, input="") == []
    assert ids(fletch, input="\n") == [[]]
    assert len(ids(fletch, input="\n\n\n")) == 3
    assert len(ids(fletch, input="a\n\nb")) == 3


def test_a_byte_order_mark_is_no_text(fletch):
    mark = "\ufeff"
    assert fletch.rows("tokenize", input=mark + "hello\n")[0]["offsets"][1] == [0, 5]
    for form, data in (("jsonl", '"hello"\n'), ("json", '["hello"]'), ("csv", "text,b\nhello,1\n")):
        assert len(ids(fletch, "--input-format", form, input=mark + data)) == 1
    assert fletch.rows("tokenize", input="a\n" + mark + "b\n")[1]["offsets"][1] == [3, 4], "only at the start"


def test_jsonl(fletch, expected, tmp_path):
    lines = [json.dumps({"id": i, "text": text}) if i % 2 else json.dumps(text) for i, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    assert ids(fletch, "-i", "in.jsonl") == expected
    assert ids(fletch, "--input-format", "jsonl", input="\n".join(lines)) == expected


@pytest.mark.parametrize("indent", [None, 2])
def test_json(fletch, expected, tmp_path, indent):
    items = [{"text": text, "more": ["]", {"a": "}"}]} if i % 2 else text for i, text in enumerate(TEXTS)]
    (tmp_path / "in.json").write_text(json.dumps(items, indent=indent))
    assert ids(fletch, "-i", "in.json") == expected


def test_json_of_one_value_and_none(fletch):
    assert len(ids(fletch, "--input-format", "json", input='{"text": "one"}')) == 1
    assert len(ids(fletch, "--input-format", "json", input='"one"')) == 1
    assert ids(fletch, "--input-format", "json", input=" [ ] \n") == []


@pytest.mark.parametrize("name, delimiter", [("in.csv", ","), ("in.tsv", "\t")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv(fletch, tmp_path, name, delimiter, end):
    texts = TEXTS + ["two\nlines", 'a "quoted" word']
    with open(tmp_path / name, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
        writer.writerow(["id", "body"])
        writer.writerows(enumerate(texts))
    assert ids(fletch, "-i", name, "--field", "body") == ids(fletch, "--", *texts)


def test_keep_fields(fletch, tmp_path):
    line = '{"id": 12345678901234567890, "text": "x", "tags": [ "a b", {"k": 1.50} ], "ids": 3, "u": "\\u00e9 \\n", "q" : "\\", {" }'
    row = fletch("tokenize", "--input-format", "jsonl", "--keep-fields", input=line).stdout.decode()
    assert row.rstrip("\n").endswith('"truncated":false,"id":12345678901234567890,"tags":["a b",{"k":1.50}],'
                                     '"u":"\\u00e9 \\n","q":"\\", {"}')
    (tmp_path / "in.csv").write_text('text,na"me\nhello,"a ""b"""\n'.replace('na"me', "name"))
    (row,) = fletch.rows("tokenize", "-i", "in.csv", "--keep-fields")
    assert row["name"] == 'a "b"' and "text" not in row
    (row,) = fletch.rows("tokenize", "--input-format", "jsonl", input=line)
    assert "id" not in row


def test_nul_is_text(fletch):
    rows = fletch.rows("tokenize", "--input-format", "jsonl", input='{"text": "a\\u0000b"}\n')
    assert len(rows) == 1
    rows = fletch.rows("tokenize", input=b"a\0b\nc\n")
    assert len(rows) == 2


BAD = [
    ("lines", b"good\nb\xffd\ngood\n", "standard input:2: not valid UTF-8: byte 0xFF at column 2"),
    ("lines", b"good\nb\xed\xa0\x80d\ngood\n", "standard input:2: not valid UTF-8"),
    ("jsonl", b'"good"\n{"text": 3}\n"good"\n', 'standard input:2: the field "text" is a number'),
    ("jsonl", b'"good"\n{"txt": "a"}\n"good"\n', 'standard input:2: has no field "text"'),
    ("jsonl", b'"good"\n{"text": "a"\n"good"\n', "standard input:2: not valid JSON"),
    ("jsonl", b'"good"\n["a"]\n"good"\n', "standard input:2: is an array"),
    ("jsonl", b'"good"\n"b\xffd"\n"good"\n', "standard input:2: not valid UTF-8"),
    ("json", b'["good", 7, "good"]', "standard input: item 2: is a number"),
    ("json", b'["good", , "good"]', "standard input: item 2: is empty"),
    ("csv", b'text,b\ngood,1\nx,1,2\ngood,2\n', "standard input:3: has 3 fields, the header has 2"),
    ("csv", b'text,b\ngood,1\n"x"y,1\ngood,2\n', "standard input:3: text after a closing quote"),
]


@pytest.mark.parametrize("form, data, says", BAD)
def test_a_bad_input_stops_with_its_place(fletch, form, data, says):
    result = fletch("tokenize", "--input-format", form, input=data)
    assert result.returncode == 1
    assert says in result.stderr.decode()
    assert len(result.stdout.splitlines()) == 1, "what stood before it is written"


@pytest.mark.parametrize("form, data, says", BAD)
def test_a_bad_input_is_left_out_when_asked(fletch, form, data, says):
    result = fletch("tokenize", "--input-format", form, "--on-error", "skip", input=data)
    assert result.returncode == 4
    assert says in result.stderr.decode()
    assert len(result.stdout.splitlines()) == 2


def test_invalid_utf8_is_repaired_when_asked(fletch):
    good = ids(fletch, "a\ufffdb")
    assert ids(fletch, "--invalid-utf8", "replace", input=b"a\xffb\n") == good
    assert ids(fletch, "--invalid-utf8", "replace", "--input-format", "jsonl", input=b'{"text":"a\xffb"}\n') == good
    assert ids(fletch, "--invalid-utf8", "replace", "--input-format", "csv", input=b"text,b\na\xffb,1\n") == good


@pytest.mark.parametrize("form, data, says", [
    ("json", b'["a", "b"', "ends inside item 2"),
    ("json", b'["a"] x', "trailing data after the array"),
    ("json", b"  ", "holds no JSON"),
])
def test_a_broken_frame_cannot_be_skipped(fletch, form, data, says):
    result = fletch("tokenize", "--input-format", form, "--on-error", "skip", input=data)
    assert result.returncode == 1 and says in result.stderr.decode()


def test_csv_without_the_column_is_wrong_usage(fletch):
    result = fletch("tokenize", "--input-format", "csv", input="id,body\n1,x\n")
    assert result.returncode == 2
    assert "id, body" in result.stderr.decode() and "--field" in result.stderr.decode()


@pytest.mark.parametrize("path, says", [("nowhere.txt", "nowhere.txt"), (".", "folder")])
def test_input_that_cannot_be_read(fletch, path, says):
    result = fletch("tokenize", "-i", path)
    assert result.returncode == 1 and says in result.stderr.decode()


@pytest.mark.parametrize("form, data", [
    ("lines", b"good\n" + b"x" * 3_000_000 + b"\ngood\n"),
    ("jsonl", b'"good"\n"' + b"x" * 3_000_000 + b'"\n"good"\n'),
    ("json", b'["good","' + b"x" * 3_000_000 + b'","good"]'),
    ("csv", b'text,b\ngood,1\n"' + b"\n" * 3_000_000 + b'",1\ngood,2\n'),
])
def test_a_line_beyond_the_limit_is_named_and_passed(fletch, form, data):
    result = fletch("tokenize", "--input-format", form, "--max-line", "1MiB", input=data)
    assert result.returncode == 1
    place = {"lines": ":2:", "jsonl": ":2:", "json": "item 2:", "csv": ":3:"}[form]
    assert place in result.stderr.decode() and "--max-line" in result.stderr.decode()
    result = fletch("tokenize", "--input-format", form, "--max-line", "1MiB", "--on-error", "skip", input=data)
    assert result.returncode == 4
    assert len(result.stdout.splitlines()) == 2


def test_a_line_of_100_mb(embed, tmp_path):
    with open(tmp_path / "long.txt", "wb") as file:
        file.write(b"before\n" + b"word " * 20_000_000 + b"\nafter\n")
    result = embed("embed", "-i", "long.txt", "--stats")
    assert result.returncode == 0, result.stderr.decode()
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["truncated"] for row in rows] == [False, True, False]
    assert peak_mb(result.stderr) < 350, "the line is held once"
    result = embed("embed", "-i", "long.txt", "--max-line", "64MiB", "--stats")
    assert result.returncode == 1 and "long.txt:2:" in result.stderr.decode()


def test_a_normaliser_that_grows_keeps_to_the_limit(fletch, tmp_path):
    """3,600 characters of each one: 30 KB of text took 1.4 GB, whatever the limit. What fits below it is as without one."""
    model = tmp_path / "grows"
    shutil.copytree(jobs.TOY, model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    more = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 60}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [more, more]}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    flags = ["embed", "-m", model, "--stats", "--format", "jsonl"]
    result = fletch(*flags, "--memory-limit", "200MiB", "a" * 30_000)
    assert result.returncode == 1 and "memory.limit leaves" in result.stderr.decode()
    assert fletch(*flags, "a" * 300).stdout == fletch(*flags, "--memory-limit", "200MiB", "a" * 300).stdout
    # Of a child of a small process: what a process takes at most counts from its fork on, and pytest may be large.
    measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3, stderr=-3); " \
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    words = [sys.executable, "-c", measure, BIN, *flags, "--memory-limit", "200MiB", "a" * 30_000]
    assert int(subprocess.run(words, capture_output=True, text=True, check=True, env=environment(tmp_path)).stdout) < 250 * 1024


def test_order_and_flat_memory(embed, tmp_path):
    """Five hundred texts or eight times as many: the same order, the same memory."""
    peaks = []
    for count in (500, 4000):
        (tmp_path / "in.txt").write_text("".join(f"{i}\n" for i in range(count)))
        result = embed("embed", "-i", "in.txt", "--format", "jsonl", "--dimensions", "4", "--stats")
        assert result.returncode == 0, result.stderr.decode()
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["index"] for row in rows] == list(range(count))
        peaks.append(peak_mb(result.stderr))
    alone = embed.rows("embed", "--dimensions", "4", "17", "3999")
    assert alone[0]["embedding"] == rows[17]["embedding"] and alone[1]["embedding"] == rows[3999]["embedding"]
    assert peaks[1] < peaks[0] * 1.2 + 10


def test_flat_memory_over_many_lines(fletch, tmp_path):
    peaks = []
    for count in (20_000, 200_000):
        with open(tmp_path / "in.txt", "w") as file:
            for i in range(count):
                file.write(f"line {i} of many\n")
        result = fletch("tokenize", "-i", "in.txt", "-o", "out.jsonl", "--stats")
        assert result.returncode == 0, result.stderr.decode()
        peaks.append(peak_mb(result.stderr))
    with open(tmp_path / "out.jsonl") as file:
        assert sum(1 for _ in file) == 200_000
    assert peaks[1] < peaks[0] + 10


def test_a_slow_producer_is_not_waited_for(fletch):
    """Results of what was sent come back while the producer is still thinking (a coprocess works)."""
    process = fletch.start("tokenize", "--format", "jsonl", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for text in (b"first\n", b"second\n"):
        process.stdin.write(text)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], WAIT)[0]:
            process.kill()
        assert json.loads(process.stdout.readline() or b"{}").get("ids"), "no answer"
    process.stdin.close()
    assert process.wait(timeout=WAIT) == 0
    process.stdout.close()


def test_every_code_point_may_be_an_escape(fletch):
    """JSON lines in ASCII give the tokens and the offsets of the same lines in UTF-8."""
    every = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
    lines = [every[i:i + 800] for i in range(0, len(every), 800)]
    asked = ["tokenize", "--input-format", "jsonl", "--format", "jsonl"]
    results = [fletch(*asked, input="".join(json.dumps({"text": line}, ensure_ascii=ascii) + "\n" for line in lines).encode())
               for ascii in (True, False)]
    assert [r.returncode for r in results] == [0, 0], results[0].stderr
    assert results[0].stdout == results[1].stdout
    assert results[0].stdout.count(b"\n") == len(lines)
