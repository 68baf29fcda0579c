# SPDX-License-Identifier: Apache-2.0
"""A folder whose files disagree gives sentence-transformers' token ids or is refused by name: never others.

odd_folders.json holds some 900 folders of BERT's kin, and odd_classes.json some 1,700 of other classes, with what transformers 4.57
and 5.23 make of them (make_odd_folders.py). Every edit alone is in `make check`, of two at a time every third of a large group; all in check-full.
"""
import collections
import json
import shutil
import subprocess

import pytest

import golden
import make_odd_folders as odd
import odd_classes
import token_cases

BERT, CLASSES = (json.loads((golden.HERE / name).read_text(encoding="utf-8")) for name in ("odd_folders.json", "odd_classes.json"))
PAIRS = json.loads((golden.HERE / "odd_pairs.json").read_text(encoding="utf-8"))
GROUPS = collections.defaultdict(list)
for _case in BERT["cases"] + CLASSES["cases"]:
    GROUPS[_case["base"], "pairs" if len(_case["edits"]) > 1 else "alone"].append(_case)
GROUPS = {key: token_cases.some(cases, 3) if key[1] == "pairs" and len(cases) > 200 else cases for key, cases in GROUPS.items()}


def run(command, folder, texts, *flags):
    done = subprocess.run([str(golden.BIN), command, "-m", str(folder), "--input", "-", "--input-format", "jsonl",
                           "--format", "jsonl", *flags],
                          input="".join(json.dumps(text) + "\n" for text in texts), capture_output=True, text=True)
    assert done.returncode in (0, 2, 3), done.stderr  # refused, not broken
    return ([json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else None), done.stderr


def tokens_alone(folder, texts):
    """The ids of a folder without weights; or the reason why not."""
    rows, reason = run("tokenize", folder, texts, "--max-length", str(odd_classes.LENGTH))
    return rows and [row["ids"] for row in rows], reason


def tokens(folder, texts):
    """The ids that `embed` sees: their number is its own, which tells the length and so the side; or the reason why not."""
    rows, reason = run("embed", folder, texts)
    if rows is None:
        return None, reason
    counts = [row["tokens"] for row in rows]
    lists, reason = run("tokenize", folder, texts, "--max-length", str(max(counts)))
    assert lists is not None, reason
    ids = [row["ids"] for row in lists]
    assert [len(row) for row in ids] == counts
    return ids, ""


@pytest.mark.parametrize("base, kind", GROUPS)
def test_no_silent_difference(base, kind, tmp_path):
    silent, refused, exact = [], [], 0
    table, get = (CLASSES, tokens_alone) if base in odd_classes.BASES else (BERT, tokens)
    for number, case in enumerate(GROUPS[base, kind]):
        folder = tmp_path / str(number)
        odd.lay_out(base, case["edits"], folder)
        ids, reason = get(folder, table["texts"])
        expected = None if case["ids"] is None else table["ids"][case["ids"]]
        if ids is None:
            assert reason.strip(), case
            # A class of another family in config.json is refused on purpose, also where both references pass it over.
            if expected is not None and ["config.json", "tokenizer_class"] not in [edit[:2] for edit in case["edits"]]:
                refused.append(case["edits"])
        elif ids != expected:
            silent.append((case["edits"], [(text, got, want) for text, got, want in
                                           zip(table["texts"], ids, expected or ids) if got != want][:1]))
        else:
            exact += 1
    assert not silent, f"{len(silent)} of {len(GROUPS[base, kind])}: {silent[:5]}"
    assert exact >= 3 * len(refused), f"{exact} exact, refused although both references agree: {refused[:20]}"


def pair_of(folder, first, second):
    """As the reference has it: the ids, and of BERT types too; or the reason why not."""
    done = subprocess.run([str(golden.BIN), "tokenize", "-m", str(folder), "--format", "jsonl", "--max-length", str(odd_classes.LENGTH),
                           "--pair", second, first], capture_output=True, text=True)
    assert done.returncode in (0, 1, 2, 3, 4), done.stderr
    if done.returncode != 0:
        return None, done.stderr
    row = json.loads(done.stdout)
    typed = json.loads((folder / "config.json").read_text())["model_type"] == "bert"
    return row["ids"] + ([-1] + [int(i >= row["segment"]) for i in range(len(row["ids"]))] if typed else []), ""


@pytest.mark.parametrize("base", odd_classes.AROUND)
def test_no_silent_difference_of_pairs(base, tmp_path):
    """A template for pairs that one of the references makes anew is refused where the file has another; the text alone is not."""
    exact, refused = 0, []
    for number, case in enumerate(case for case in PAIRS["cases"] if case["base"] == base):
        folder = tmp_path / str(number)
        odd.lay_out(base, case["edits"], folder)
        expected = None if case["ids"] is None else PAIRS["ids"][case["ids"]]
        for i, (first, second) in enumerate(PAIRS["texts"]):
            ids, reason = pair_of(folder, first, second)
            if ids is None:
                assert reason.strip(), case
                if expected is not None:
                    refused.append(case["edits"])
            else:
                assert expected is not None and ids == expected[i], (case["edits"], first, second, ids, expected and expected[i])
                exact += 1
    assert exact >= 3 * len(refused), f"{exact} exact, refused although both references agree: {refused[:5]}"


def test_a_hundred_thousand_added_tokens(tmp_path):
    """Each is compared with all others, in both files: by hash, and however many there are."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "vocab.txt"):
        shutil.copy(golden.HERE / "folders/plain-bert" / name, tmp_path / name)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    first = 1 + max(tokenizer["model"]["vocab"].values())
    more = [{"id": first + i, "content": f"<{i}>"} | flags for i in range(50000)]
    tokenizer["added_tokens"] += more
    config["added_tokens_decoder"] = {str(token["id"]): token for token in tokenizer["added_tokens"]}
    config["added_tokens_decoder"] |= {str(first + i): {"content": f"<{i}>"} | flags for i in range(50000, 100000)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    done = subprocess.run([golden.BIN, "tokenize", "-m", tmp_path, "--format", "jsonl", "<7> <49999> <50000> <99999>"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ids"][1:-1] == [first + i for i in (7, 49999, 50000, 99999)]
