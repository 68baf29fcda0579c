# SPDX-License-Identifier: Apache-2.0
"""What an input is, is seen from its first bytes: compressed text is expanded and UTF-16 decoded, in flat memory;
what is no text is named with the way to convert it, and never embedded as if it were."""
import gzip
import io
import json
import lzma
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from commandline import WAIT, peak_mb

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer

TEXTS = ["A cat sits.", "", "Grüße 日本語 🙂", "the last one"]
PLAIN = "".join(text + "\n" for text in TEXTS).encode()


def ids(fletch, *arguments, **options):
    return [row["ids"] for row in fletch.rows("tokenize", "--no-special-tokens", *arguments, **options)]


def zstd(data, *flags):
    program = shutil.which("zstd") or pytest.skip("zstd is not installed")
    return subprocess.run([program, "-c", *flags], input=data, capture_output=True, check=True, timeout=WAIT).stdout


@pytest.fixture
def expected(fletch):
    return ids(fletch, input=PLAIN)


def packed():
    half = PLAIN.index(b"\n") + 1
    yield "gzip", gzip.compress(PLAIN)
    yield "two members", gzip.compress(PLAIN[:half]) + gzip.compress(PLAIN[half:])
    yield "padded", gzip.compress(PLAIN) + bytes(1000)
    yield "stored", gzip.compress(PLAIN, 0)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in packed()])
def test_gzip(fletch, expected, tmp_path, data):
    (tmp_path / "texts").write_bytes(data)
    assert ids(fletch, "-i", "texts") == expected  # by its bytes, not by its name
    assert ids(fletch, input=data) == expected


def test_zstd(fletch, expected, tmp_path):
    half = PLAIN.index(b"\n") + 1
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    for data in (zstd(PLAIN), zstd(PLAIN, "--no-check", "-19"), zstd(PLAIN[:half]) + zstd(PLAIN[half:]), skippable + zstd(PLAIN)):
        (tmp_path / "texts.zst").write_bytes(data)
        assert ids(fletch, "-i", "texts.zst") == expected
        assert ids(fletch, input=data) == expected


def test_the_name_under_the_ending_says_the_format(fletch, tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,text\n1,hello\n"))
    (tmp_path / "a.jsonl.GZ").write_bytes(gzip.compress(b'{"text": "hello"}\n'))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'["hello"]'))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"hello\n"))
    rows = [ids(fletch, "-i", name) for name in ("a.csv.gz", "a.jsonl.GZ", "a.json.gz", "a.txt.gz")]
    assert rows == [rows[0]] * 4 and len(rows[0]) == 1


@pytest.mark.parametrize("charset, mark", [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff"),
                                           ("utf-32-le", b"\xff\xfe\0\0"), ("utf-32-be", b"\0\0\xfe\xff")])
def test_marked_charsets_are_decoded(fletch, expected, tmp_path, charset, mark):
    data = mark + PLAIN.decode().encode(charset)
    assert ids(fletch, input=data) == expected
    assert ids(fletch, input=gzip.compress(data)) == expected
    (tmp_path / "a.csv").write_bytes(mark + "id,text\r\n1,hello\r\n".encode(charset))
    assert len(ids(fletch, "-i", "a.csv")) == 1


def test_half_a_pair_and_half_a_character_are_told(fletch):
    lone = b"\xff\xfe" + "good\nb".encode("utf-16-le") + b"\x3d\xd8" + "x\ngood\n".encode("utf-16-le")
    result = fletch("tokenize", input=lone)
    assert result.returncode == 1 and "standard input:2: not valid UTF-8" in result.stderr.decode()
    assert len(ids(fletch, "--invalid-utf8", "replace", input=lone)) == 3
    result = fletch("tokenize", input=b"\xff\xfe" + "good\n".encode("utf-16-le") + b"x")
    assert result.returncode == 1 and "ends inside a character" in result.stderr.decode()


def test_memory_stays_flat_and_a_large_file_is_whole(fletch, tmp_path):
    count = 400_000
    data = "".join(f"text number {i} of many that are alike\n" for i in range(count)).encode()
    small = peak_mb(fletch("tokenize", "--stats", "-q", "--format", "jsonl", input=b"a\n").stderr)
    for name, bytes_ in (("a.gz", gzip.compress(data, 1)), ("a.utf16", data.decode().encode("utf-16"))):
        (tmp_path / name).write_bytes(bytes_)
        result = fletch("tokenize", "--stats", "-i", name, "-o", "/dev/null", "--format", "jsonl", "--no-special-tokens")
        assert result.returncode == 0 and f"texts        {count}\n" in result.stderr.decode()
        assert peak_mb(result.stderr) < small + 40, "as many bytes as one window"


def cut_off():
    yield "gzip", gzip.compress(PLAIN)[:-10], "the gzip data is truncated"
    yield "gzip without its checksum", gzip.compress(PLAIN)[:-8], "the gzip data is truncated"
    whole = bytearray(gzip.compress(PLAIN))
    whole[-5] ^= 1
    yield "wrong checksum", bytes(whole), "standard input: corrupt gzip data"
    yield "something behind", gzip.compress(PLAIN) + b"more", "trailing data after the gzip data"
    yield "twice", gzip.compress(gzip.compress(PLAIN)), "compressed twice (gzip inside)"


@pytest.mark.parametrize("data, says", [pytest.param(data, says, id=name) for name, data, says in cut_off()])
def test_damaged_gzip_is_an_error_that_says_so(fletch, data, says):
    result = fletch("tokenize", "--on-error", "skip", input=data)
    assert result.returncode == 1 and says in result.stderr.decode()


def test_damaged_zstd_is_an_error_that_says_so(fletch):
    whole = zstd(PLAIN * 1000)
    result = fletch("tokenize", input=whole[:-20])
    assert result.returncode == 1 and "the zstd data is truncated" in result.stderr.decode()
    result = fletch("tokenize", input=whole + b"xyzw")
    assert result.returncode == 1 and "standard input: corrupt zstd data" in result.stderr.decode()


def binary():
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a.txt", PLAIN)
    with tarfile.open(fileobj=tarred, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    yield "xz", lzma.compress(PLAIN), "xz -dc"
    yield "zip", zipped.getvalue(), "unzip"
    yield "tar", tarred.getvalue(), "tar -xf"
    yield "tar in gzip", gzip.compress(tarred.getvalue()), "a tar archive in gzip"
    yield "Parquet", b"PAR1\x15\x04\x15\x10" + bytes(range(64)), "read_parquet"
    yield "Arrow", b"ARROW1\0\0\xff\xff\xff\xff\x10\0\0\0", "read_feather"
    yield "Arrow stream", b"\xff\xff\xff\xff\x70\0\0\0\x10\0\0\0", "pyarrow"
    yield "SQLite", b"SQLite format 3\0" + bytes(64), "sqlite3"
    yield "NumPy", b"\x93NUMPY\x01\0v\0{'descr'", "NumPy"
    yield "UTF-16 without a mark", "hello there\n".encode("utf-16-le"), "iconv -f UTF-16LE"


@pytest.mark.parametrize("data, says", [pytest.param(data, says, id=name) for name, data, says in binary()])
@pytest.mark.parametrize("flags", [(), ("--invalid-utf8", "replace", "--on-error", "skip")])
def test_what_is_no_text_is_named_with_a_way(fletch, tmp_path, data, says, flags):
    (tmp_path / "input").write_bytes(data)
    result = fletch("tokenize", "-i", "input", *flags)
    text = result.stderr.decode()
    assert result.returncode == 1 and result.stdout == b"" and says in text and "input" in text
    assert "--invalid-utf8" not in text


def test_bytes_of_no_known_kind_are_not_called_repairable(fletch):
    text = fletch("tokenize", input=b"\x01\x02\0\xff\xfe\0\x13\n").stderr.decode()
    assert "does not look like text" in text and "--invalid-utf8" not in text


@pytest.mark.parametrize("text", ["PAR1 is the name of a gene", "PK", "ORC armies march", "BZh91", "%PDF- files", "P", "\x1b[1mbold"])
def test_texts_that_begin_like_a_format_are_texts(fletch, text):
    assert len(ids(fletch, input=text + "\n")) == 1


def test_a_slow_producer_of_few_bytes_is_not_waited_for(fletch):
    with fletch.start("tokenize", "--format", "jsonl", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text in (b"P\n", b"x\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert len(json.loads(process.stdout.readline())["ids"]) == 3
        process.stdin.close()
        assert process.wait(WAIT) == 0
