# SPDX-License-Identifier: Apache-2.0
"""The reader of GGUF files: blocks of every type become the very floats of the gguf package, and a file that lies is
told by name, never believed."""
import struct
import subprocess

import gguf
import numpy
import pytest

import golden

DUMP = golden.BUILD / "tests/model_dump"
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def values(path) -> dict[str, numpy.ndarray]:
    """What the program reads of a weight file's tensors."""
    done = subprocess.run([DUMP, "--values", path], capture_output=True)
    assert done.returncode == 0, done.stderr
    out, at = {}, 0
    while at < len(done.stdout):
        end = done.stdout.index(b"\n", at)
        name, count = done.stdout[at:end].decode().split()
        at = end + 1 + 4 * int(count)
        out[name] = numpy.frombuffer(done.stdout[end + 1:at], numpy.float32)
    return out


def refusal(path) -> str:
    done = subprocess.run([DUMP, "--values", path], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", TYPES)
def test_blocks_are_the_packages_to_the_last_bit(name, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    per, size = gguf.GGML_QUANT_SIZES[kind]
    rows, width = 300, 1024
    data = numpy.random.default_rng(7).integers(0, 256, (rows, width // per * size), numpy.uint8)
    if name == "F32":
        data = data.view(numpy.float32)
    elif name == "F16":
        data = data.view(numpy.float16)
    with numpy.errstate(all="ignore"):
        expected = gguf.dequantize(data, kind).astype(numpy.float32)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "bert")
    writer.add_tensor("a", data, raw_dtype=kind)
    write(writer)
    read = values(tmp_path / "a.gguf")["a"].reshape(rows, width)
    same = (read.view(numpy.uint32) == expected.view(numpy.uint32)) | (numpy.isnan(read) & numpy.isnan(expected))
    assert same.all()


def write(writer) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name=b"t", dims=(32, 2), kind=0, offset=0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file(pairs=(), tensors=(), data=b"", version=3, counts=None, align=32) -> bytes:
    tensor_count, pair_count = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % align) + data


GOOD = file([pair(b"general.architecture", 8, text(b"bert"))], [tensor(), tensor(b"u", (32,), 8, 256)], bytes(256 + 34))
LIES = [
    ("the file ends inside its header", GOOD[:30]),
    ("the file ends inside its header", file([pair(b"a", 8, struct.pack("<Q", 1 << 60))])),
    ("the file ends inside its header", file([text(b"a" * 9)[:8]], counts=(0, 1))),
    ("the file ends inside its header", file([struct.pack("<Q", 1 << 60)], counts=(0, 1))),
    ("the file ends inside its header", file([pair(b"a", 9, struct.pack("<IQ", 4, 1 << 62))])),
    ("the file ends inside its header", file([pair(b"a", 9, struct.pack("<IQ", 8, 1 << 62))])),
    ("the file ends inside its header", file(counts=(1, 0), align=1)),
    ('duplicate metadata key "a"', file([pair(b"a", 4, bytes(4))] * 2)),
    ("metadata key is empty", file([pair(b"", 4, bytes(4))])),
    ("metadata key is empty", file([pair(b"a\0b", 4, bytes(4))])),
    ("metadata type 13 is not supported", file([pair(b"a", 13, bytes(8))])),
    ("array of metadata type 9 is not", file([pair(b"a", 9, struct.pack("<IQ", 9, 1))])),
    ("version 1 is not supported", file(version=1)),
    ("version 50331648 is not supported", file(version=3 << 24)),
    ("has more than", file(counts=(1 << 60, 0))),
    ("has more than", file(counts=(0, 1 << 60))),
    ("general.alignment is not", file([pair(b"general.alignment", 4, struct.pack("<I", 0))])),
    ("general.alignment is not", file([pair(b"general.alignment", 4, struct.pack("<I", 24))])),
    ("general.alignment is not", file([pair(b"general.alignment", 8, text(b"32"))])),
    ("general.alignment is not", file([pair(b"general.alignment", 5, struct.pack("<i", -32))])),
    ("tensor t is a duplicate", file([], [tensor(), tensor(offset=256)], bytes(512))),
    ("tensor t is of type 10 of the format", file([], [tensor(dims=(256,), kind=10)], bytes(512))),
    ("tensor t is of type 99 of the format", file([], [tensor(kind=99)], bytes(512))),
    ("tensor t has no or more than 4 dimensions", file([], [tensor(dims=())], bytes(512))),
    ("tensor t has no or more than 4 dimensions", file([], [tensor(dims=(1,) * 5)], bytes(512))),
    ("tensor t has a dimension of 0", file([], [tensor(dims=(32, 0))], bytes(512))),
    ("tensor t has a dimension of 0", file([], [tensor(dims=(1 << 40, 1 << 40))], bytes(512))),
    ("tensor t has rows that are not whole blocks", file([], [tensor(dims=(48,), kind=8)], bytes(512))),
    ("tensor t extends past the end", file([], [tensor()], bytes(255))),
    ("tensor t extends past the end", file([], [tensor()])),
    ("tensor t does not begin where", file([], [tensor(offset=32)], bytes(512))),
    ("tensor u does not begin where", file([], [tensor(), tensor(b"u", offset=128)], bytes(512))),
    ("tensor t does not begin where", file([], [tensor(offset=1 << 63)], bytes(512))),
    ("the name of a tensor is empty", file([], [tensor(b"")], bytes(512))),
    ("the name of a tensor is empty", file([], [tensor(b"a\0b")], bytes(512))),
    ("the name of a tensor is empty", file([], [tensor(b"a" * 256)], bytes(512))),
]


def test_a_file_written_by_hand_is_read(tmp_path):
    (tmp_path / "a.gguf").write_bytes(GOOD)
    assert {name: len(read) for name, read in values(tmp_path / "a.gguf").items()} == {"t": 64, "u": 32}


@pytest.mark.parametrize("what, content", LIES, ids=[f"{i}-{what[:30]}" for i, (what, _) in enumerate(LIES)])
def test_a_file_that_lies_is_told(what, content, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    message = refusal(path)
    assert what in message and str(path) in message


def test_no_prefix_of_a_file_passes(tmp_path):
    path = tmp_path / "a.gguf"
    for size in range(4, len(GOOD)):
        path.write_bytes(GOOD[:size])
        refusal(path)


def part(number: int, count: int, name: bytes) -> bytes:
    said = [pair(b"split.no", 2, struct.pack("<H", number)), pair(b"split.count", 2, struct.pack("<H", count))]
    return file(said, [tensor(name)], bytes(256))


def test_the_parts_of_a_file_are_gathered(tmp_path):
    paths = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    paths[0].write_bytes(part(0, 2, b"t"))
    assert f"{paths[1]} is missing" in refusal(paths[0])
    paths[1].write_bytes(part(1, 2, b"u"))
    assert set(values(paths[0])) == {"t", "u"}
    assert "name the first" in refusal(paths[1]) or "does not end in" in refusal(paths[1])
    paths[1].write_bytes(part(1, 2, b"t"))
    assert "tensor t is in another part as well" in refusal(paths[0])
    paths[1].write_bytes(part(0, 2, b"u"))
    assert "name the first of them" in refusal(paths[0])
    paths[0].rename(tmp_path / "m.gguf")
    assert "its name does not end in -00001-of-00002.gguf" in refusal(tmp_path / "m.gguf")
