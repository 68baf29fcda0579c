# SPDX-License-Identifier: Apache-2.0
"""Which field or column is the text: by name, number or path, several joined; and what of the input the results keep."""
import json

import pytest

pytestmark = pytest.mark.usefixtures("embed")  # the model is needed, if only its tokenizer


def texts(fletch, *arguments, **options):
    return [row["text"] for row in fletch.rows("tokenize", "--keep-text", *arguments, **options)]


def csv(fletch, data, *flags):
    return texts(fletch, "--input-format", "csv", *flags, input=data)


def test_keep_text(embed):
    row, = embed.rows("embed", "--keep-text", 'a "quoted" text')
    assert row["text"] == 'a "quoted" text' and list(row)[:2] == ["index", "embedding"]
    row, = embed.rows("embed", "--keep-text", "--keep-fields", "--input-format", "jsonl", "--field", "body",
                      input='{"id": 1, "body": "b", "text": "other"}\n')
    assert row["text"] == "b" and row["id"] == 1
    assert "text" not in embed.rows("embed", "x")[0]
    result = embed("embed", "--keep-text", "--format", "npy", "x")
    assert result.returncode == 2 and "--keep-text" in result.stderr.decode()


def test_delimiters(fletch):
    assert csv(fletch, "id;text\n1;a, b\n", "--delimiter", ";") == ["a, b"]
    assert csv(fletch, "id\ttext\n1\ta\n", "--delimiter", "\\t") == ["a"]
    assert csv(fletch, "id|text\n1|\"a|b\"\n", "--delimiter", "|") == ["a|b"]
    for wrong in ('"', "", "ab"):
        assert fletch("tokenize", "--delimiter", wrong, input="").returncode == 2


def test_columns_by_number_and_without_a_header(fletch):
    assert csv(fletch, "id,body\n1,a\n", "--field", "2") == ["a"]
    assert csv(fletch, "2,body\nx,a\n", "--field", "2") == ["x"], "a name wins"
    assert csv(fletch, "one,two\nthree,four\n", "--no-header") == ["one", "three"]
    assert csv(fletch, "one,two\nthree,four\n", "--no-header", "--field", "2") == ["two", "four"]
    assert csv(fletch, "", "--no-header") == []
    row, = fletch.rows("tokenize", "--input-format", "csv", "--no-header", "--keep-fields", input="one,two\n")
    assert row["2"] == "two" and "1" not in row
    for field in ("0", "3", "x", "99999999999999999999"):
        result = fletch("tokenize", "--input-format", "csv", "--field", field, input="id,body\n1,a\n")
        assert result.returncode == 2 and "id, body" in result.stderr.decode()


def test_joined_columns(fletch):
    data = 'id,title,"last, first",body\n1,T,L,"a ""b"""\n'
    assert csv(fletch, data, "--field", "title,body") == ['T a "b"']
    assert csv(fletch, data, "--field", "body,title", "--join", ": ") == ['a "b": T']
    assert csv(fletch, data, "--field", "2,4", "--join", "") == ['Ta "b"']
    assert csv(fletch, data, "--field", "last, first") == ["L"], "a name with a comma"
    row, = fletch.rows("tokenize", "--input-format", "csv", "--field", "title,body", "--keep-fields", input=data)
    assert row["id"] == "1" and row["last, first"] == "L" and "title" not in row and "body" not in row
    result = fletch("tokenize", "--input-format", "csv", "--field", "title,boddy", input=data)
    assert result.returncode == 2 and 'no column "boddy"' in result.stderr.decode()
    assert fletch("tokenize", "--field", ",".join("x" * 17), input="").returncode == 2


def jsonl(fletch, value, field, *flags):
    return texts(fletch, "--input-format", "jsonl", "--field", field, *flags, input=json.dumps(value) + "\n")


def test_json_paths_and_joined_fields(fletch):
    deep = {"id": 1, "meta": {"lang": "de", "doc": {"text": "Grüße \n", "n": [1, {"text": "no"}]}}, "text": "top"}
    assert jsonl(fletch, deep, "meta.doc.text") == ["Grüße \n"]
    assert jsonl(fletch, deep, "text") == ["top"]
    assert jsonl(fletch, deep, "meta.doc.text,text,meta.lang", "--join", "|") == ["Grüße \n|top|de"]
    assert jsonl(fletch, {"meta.text": "dotted"}, "meta.text") == ["dotted"]
    assert jsonl(fletch, {"a": {"b.c": "x"}}, "a.b.c") == ["x"]
    assert jsonl(fletch, "a string", "meta.text") == ["a string"]
    row, = fletch.rows("tokenize", "--input-format", "jsonl", "--field", "meta.doc.text", "--keep-fields",
                       input=json.dumps(deep) + "\n")
    assert row["id"] == 1 and row["text"] == "top" and row["meta"]["lang"] == "de"


@pytest.mark.parametrize("value, field, says", [
    ({"meta": {"txt": "a"}}, "meta.text", 'has no field "meta.text"'), ({"meta": "a"}, "meta.text", 'has no field "meta.text"'),
    ({"meta": {"text": 3}}, "meta.text", 'the field "meta.text" is a number'), ({"a": "x", "b": None}, "a,b", '"b" is null'),
    ({"a": "x"}, "a,b", 'has no field "b"'),
])
def test_what_a_path_does_not_find_is_named(fletch, value, field, says):
    result = fletch("tokenize", "--input-format", "jsonl", "--field", field, input=json.dumps(value) + "\n")
    assert result.returncode == 1 and says in result.stderr.decode()


@pytest.mark.parametrize("form, data, field, says", [
    ("jsonl", '{"a": "x"}\n', "a,a", "--field names a twice"), ("csv", "a,b\n1,2\n", "b,a,b", "--field names b twice"),
    ("csv", "a,b\n1,2\n", "a,1", 'the column "a" twice'), ("csv", "a,b\n1,2\n", "2,02", 'the column "b" twice')])
def test_one_field_named_twice(fletch, form, data, field, says):
    result = fletch("tokenize", "--input-format", form, "--field", field, input=data)
    assert result.returncode == 2 and says in result.stderr.decode() and result.stdout == b""
