# SPDX-License-Identifier: Apache-2.0
"""chunk: rows that are the document when laid end to end, in every input format, and what is refused.

`embed --chunk` gives a vector for each such row: plain, that of the row's text; late, the published pooling in torch.

That tokens are counted right is told by `fletch tokenize`, whose ids test_cli_tokenize.py compares with the reference."""
import json

import commandline
import numpy
import pytest

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer

TEXT = "A cat sits on the mat. It purrs.\n\nMr. Smith went to Washington. né 日本語。\n"
MARKDOWN = "# One\n\ntext\n\n```\n# no heading\n```\n\n## Two\n\nmore text\n"


def test_jsonl_lines_are_exactly_the_contract(fletch):
    result = fletch("chunk", "--size", "9", "né 日本。 It purrs and sleeps all day.")
    assert result.stdout.decode() == (
        '{"index":0,"chunk":0,"bytes":[0,14],"chars":[0,7],"tokens":4,"text":"né 日本。 "}\n'
        '{"index":0,"chunk":1,"bytes":[14,42],"chars":[7,35],"tokens":9,"text":"It purrs and sleeps all day."}\n'
    )


@pytest.mark.parametrize("by", ["sentences", "tokens", "paragraphs", "markdown"])
@pytest.mark.parametrize("size", [1, 5, 12, 200])
def test_no_byte_is_lost_and_no_chunk_too_long(fletch, by, size):
    rows = fletch.rows("chunk", "--by", by, "--size", size, TEXT)
    assert "".join(row["text"] for row in rows) == TEXT
    assert [row["chunk"] for row in rows] == list(range(len(rows)))
    counted = fletch.rows("tokenize", "--no-special-tokens", "--", *(row["text"] for row in rows))
    assert [row["tokens"] for row in rows] == [len(row["ids"]) for row in counted]
    assert all(row["tokens"] <= size for row in rows)
    for row in rows:
        assert TEXT[slice(*row["chars"])] == TEXT.encode()[slice(*row["bytes"])].decode() == row["text"]


def test_what_is_kept_whole(fletch):
    def texts(by, size, text):
        return [row["text"] for row in fletch.rows("chunk", "--by", by, "--size", size, text)]
    assert texts("sentences", 9, "One two. Three. Four five six seven eight.") == ["One two. Three. ",
                                                                                   "Four five six seven eight."]
    assert texts("paragraphs", 6, "One two.\n\nThree. Four.\n\nFive.") == ["One two.\n\n", "Three. Four.\n\nFive."]
    second = MARKDOWN.index("## Two")
    assert texts("markdown", 14, MARKDOWN) == [MARKDOWN[:second], MARKDOWN[second:]]
    assert texts("tokens", 3, "one two three four") == ["one two three ", "four"]


def test_an_overlap_repeats_whole_sentences(fletch):
    rows = fletch.rows("chunk", "--size", "6", "--overlap", "3", "One two. Three four. Five six. Seven.")
    assert [row["bytes"] for row in rows] == [[0, 21], [9, 31], [21, 37]]


def test_documents_keep_their_place_and_fields(fletch):
    lines = [json.dumps({"id": "x", "body": "One. Two."}), json.dumps({"id": "y", "body": ""}),
             json.dumps({"id": "z", "body": "Three."})]
    rows = fletch.rows("chunk", "--size", "2", "--input-format", "jsonl", "--field", "body", "--keep-fields",
                       input="\n".join(lines))
    assert [(row["index"], row["chunk"], row["id"], row["text"]) for row in rows] == [
        (0, 0, "x", "One. "), (0, 1, "x", "Two."), (2, 0, "z", "Three.")]


def test_text_is_for_a_person(fletch):
    text = fletch("chunk", "--size", "3", "--format", "text", "One two. Three\x1b.").stdout.decode()
    assert "2 chunks" in text and "0-9  3 tokens  One two. " in text and "\x1b" not in text


@pytest.mark.parametrize("arguments, says", [
    (["--size", "255"], "too long for the model: it accepts 254"), (["--size", "0"], "--size takes a number"),
    (["--size", "4", "--overlap", "4"], "an overlap of 4 tokens"), (["--overlap", "-1"], "--overlap takes a number"),
    (["--by", "lines"], "sentences"),
])
def test_wrong_usage_is_named(fletch, arguments, says):
    result = fletch("chunk", *arguments, "text")
    assert result.returncode == 2 and result.stdout == b"" and says in result.stderr.decode()


def test_a_text_that_is_no_utf8_is_refused_alone(fletch):
    result = fletch("chunk", "--on-error", "skip", input=b"one\n\xff\ntwo\n")
    assert result.returncode == 4 and "standard input:2" in result.stderr.decode()
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == ["one", "two"]


def test_without_length_a_model_wants_a_size(fletch, tmp_path):
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "modules.json").write_text('[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.StaticEmbedding"}]')
    vocabulary = {"[UNK]": 0, "a": 1, ".": 2}
    (folder / "tokenizer.json").write_text(json.dumps({
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary}}))
    result = fletch("chunk", "-m", folder, "a. a.")
    assert result.returncode == 2 and "set the number of tokens per chunk" in result.stderr.decode()
    assert [row["text"] for row in fletch.rows("chunk", "-m", folder, "--size", "2", "a. a.")] == ["a. ", "a."]


GOLDEN = commandline.ROOT / "tests/golden"
SPANS = json.loads((GOLDEN / "spans.json").read_text(encoding="utf-8"))
SMALL = ("-m", GOLDEN / "folders/family-distilbert")
PLACES = ("index", "chunk", "bytes", "chars", "tokens")


def places(rows):
    return [[row[name] for name in PLACES] for row in rows]


@pytest.mark.parametrize("late", [[], ["--late-chunking"]])
def test_embed_gives_a_row_for_each_chunk(embed, tmp_path, late):
    texts = [TEXT, MARKDOWN, "  ", "", "It purrs."]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
    cut = embed.rows("chunk", "--size", "9", "--overlap", "3", "-i", "in.jsonl")
    rows = embed.rows("embed", "--chunk", "sentences", "--chunk-size", "9", "--chunk-overlap", "3", *late, "-i", "in.jsonl",
                      "--keep-fields", "--keep-text")
    cut = [row for row in cut if row["tokens"]]  # white space alone has no vector
    assert places(rows) == places(cut) and [row["text"] for row in rows] == [row["text"] for row in cut]
    assert [row["id"] for row in rows] == [f"d{row['index']}" for row in rows] and {row["index"] for row in rows} == {0, 1, 4}
    if not late:
        alone = embed.rows("embed", "--", *(row["text"] for row in rows))
        assert [row["embedding"] for row in rows] == [row["embedding"] for row in alone]


def test_late_chunks_are_pooled_as_published(fletch):
    want = next(case["vectors"] for case in SPANS["cases"] if case["folder"] == "family-distilbert" and not case["window"])
    rows = fletch.rows("embed", *SMALL, "--normalize", "true", "--chunk", "sentences", "--chunk-size", "60", "--late-chunking",
                       SPANS["text"])
    assert [row["bytes"] for row in rows] == [[0, 34], [34, 113], [113, 159]]  # the white space between belongs to no token
    assert numpy.abs(numpy.array([row["embedding"] for row in rows]) - numpy.array(want[:3])).max() <= 1e-5


def test_arrays_of_chunks(fletch, tmp_path):
    arguments = ("embed", *SMALL, "--chunk", "tokens", "--chunk-size", "12", TEXT, " ", MARKDOWN)
    rows = fletch.rows(*arguments)
    for name in ("rows.npz", "rows.npy"):
        assert fletch(*arguments, "-o", name).returncode == 0
    with numpy.load(tmp_path / "rows.npz") as found:
        assert sorted(found) == ["chunks", "embeddings"] and found["chunks"].dtype == numpy.int64
        assert found["chunks"].tolist() == [[row["index"], row["chunk"], *row["bytes"], *row["chars"]] for row in rows]
        assert found["embeddings"].tolist() == numpy.array([row["embedding"] for row in rows], numpy.float32).tolist()
        assert found["embeddings"].tobytes() == numpy.load(tmp_path / "rows.npy").tobytes()


@pytest.mark.parametrize("arguments, says", [
    (["--chunk-size", "9"], "need --chunk"), (["--late-chunking"], "need --chunk"),
    (["--chunk", "tokens", "--chunk-size", "0"], "--chunk-size takes a number"), (["--chunk", "lines"], "--chunk must be one of"),
    (["--chunk", "tokens", "--chunk-overlap", "-1"], "--chunk-overlap takes a number"),
    (["--chunk", "tokens", "--chunk-size", "8", "--chunk-overlap", "8"], "an overlap of 8 tokens"),
    (["--chunk", "tokens", "--chunk-size", "1000000"], "too long for the model"),
    (["--chunk", "tokens", "--chunk-size", "1000000", "--late-chunking"], "too long for the model"),
    (["--chunk", "tokens", "--output-kind", "tokens"], "--output-kind"),
])
def test_wrong_flags_of_chunks_are_named(fletch, arguments, says):
    result = fletch("embed", *SMALL, *arguments, "text")
    assert result.returncode == 2 and result.stdout == b"" and says in result.stderr.decode()


def test_a_document_that_cannot_be_chunked_late_is_refused_alone(fletch, embed):
    """Every piece of a word is a chunk here, and one of them begins inside of a token of the whole word."""
    arguments = ("embed", "--chunk", "tokens", "--chunk-size", "1", "--late-chunking", "--format", "jsonl")
    result = fletch(*arguments, "--on-error", "skip", input=b"one\nunbelievably\n\xff\ntwo\n")
    said = result.stderr.decode()
    assert result.returncode == 4 and "standard input:2: a chunk contains no complete token" in said and "standard input:3" in said
    assert [json.loads(line)["index"] for line in result.stdout.splitlines()] == [0, 3]
    assert fletch(*arguments, "unbelievably").returncode == 1
    static = fletch("embed", "-m", GOLDEN / "folders/family-static", "--chunk", "tokens", "--chunk-size", "4", "--late-chunking", "a b")
    assert static.returncode == 3 and "static" in static.stderr.decode()
