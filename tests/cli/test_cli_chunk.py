# SPDX-License-Identifier: Apache-2.0
"""chunk: rows that are the document when laid end to end, in every input format, and what is refused.

That tokens are counted right is told by `fletch tokenize`, whose ids test_cli_tokenize.py compares with the reference."""
import json

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
    (["--size", "255"], "more than the model takes: 254"), (["--size", "0"], "--size is a number"),
    (["--size", "4", "--overlap", "4"], "an overlap of 4 tokens"), (["--overlap", "-1"], "--overlap is a number"),
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
    assert result.returncode == 2 and "say how many tokens a chunk has" in result.stderr.decode()
    assert [row["text"] for row in fletch.rows("chunk", "-m", folder, "--size", "2", "a. a.")] == ["a. ", "a."]
