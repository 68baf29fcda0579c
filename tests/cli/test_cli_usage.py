# SPDX-License-Identifier: Apache-2.0
"""Wrong usage is exit code 2 with a way out; help exists for everything; the codes scripts depend on."""
import json
import re

import pytest

COMMANDS = ["embed", "run", "tokenize", "decode", "model", "config", "doctor", "canary", "verify", "version", "completion", "help"]


@pytest.mark.parametrize("arguments, says", [
    (["embd", "x"], "did you mean 'fletch embed'"),
    (["embed", "--pooled", "cls", "x"], "did you mean --pooling"),
    (["embed", "--provider-ordr", "cpu", "x"], "did you mean --provider-order"),
    (["embed", "--dimensoins=3", "x"], "did you mean --dimensions"),
    (["embed", "-x", "text"], "after --"),
    (["embed", "--format", "yaml", "x"], "text|json|jsonl|npy|npz|raw|fvecs"),
    (["embed", "--input"], "--input needs a value"),
    (["embed", "--stats=yes", "x"], "takes no value"),
    (["embed", "x", "--input", "f.txt"], "exclude each other"),
    (["embed", "x", "--output", "vectors.xyz"], "add --format text|json|jsonl|npy|npz|raw|fvecs"),
    (["embed", "x", "--max-line", "much"], "--max-line"),
    (["embed", "x", "--similarity", "--dtype", "int8"], "--dtype"),
    (["embed", "x", "--similarity", "--format", "npy"], "--similarity"),
    (["embed", "x", "--similarity", "--output", "table.npy"], "--similarity"),
    (["embed", "--input", "*.txt", "b.txt"], "exclude each other"),
    (["embed", "x", "--output", "a.npy", "-o", "b.npy"], "--output is given twice"),
    (["classify", "x", "--labels", "a", "--labels", "b"], "--labels is given twice"),
    (["embed", "x", "--output", "."], "is a folder"),
    (["embed", "x", "--keep-fields", "--format", "npy"], "--keep-fields"),
    (["embed", "x", "--threads", "many"], "--threads"),
    (["embed", "x", "--preset", "fastest"], "cpu|gpu|latency"),
    (["tokenize", "x", "--dtype", "int8"], "unknown flag '--dtype'"),
    (["tokenize", "x", "--max-length", "-1"], "--max-length"),
    (["model"], "pull|ls|path|verify|id|rm|convert"),
    (["model", "remove"], "did you mean rm?"),
    (["model", "list"], "did you mean ls?"),
    (["model", "verfy"], "did you mean verify?"),
    (["encode", "x"], "did you mean 'fletch embed'"),
    (["decoed", "x"], "did you mean 'fletch decode'"),
    (["embeddings", "x"], "did you mean 'fletch embed'"),
    (["server"], "did you mean 'fletch serve'"),
    (["pull"], "did you mean 'fletch model pull'"),
    (["embed", "--format", "jsnol", "x"], "did you mean jsonl?"),
    (["embed", "--intra-op-threads", "2", "x"], "did you mean --cpu-intra-op-threads?"),
    (["config", "get", "threads"], "did you mean cpu.intra_op_threads?"),
    (["config", "get", "FLETCH_CPU_ISA"], "did you mean cpu.isa?"),
    (["help", "precision"], "did you mean 'provider.precision'?"),
    (["help", "--", "--threads"], "did you mean 'cpu.intra_op_threads'?"),
    (["help", "FLETCH_CPU_ISA"], "did you mean 'cpu.isa'?"),
    (["help", "encode"], "did you mean 'embed'?"),
    (["help", "srve"], "did you mean 'serve'?"),
    (["model", "rm"], "rm needs the name"),
    (["config", "get", "cpu.isaa"], "did you mean cpu.isa?"),
    (["config", "set", "a"], "get KEY"),
    (["completion", "tcsh"], "bash|zsh|fish"),
    (["help", "nothing"], "no help for"),
    (["version", "2"], "no arguments"),
])
def test_wrong_usage_is_2_and_says_a_way_out(fletch, arguments, says):
    result = fletch(*arguments)
    assert result.returncode == 2
    assert result.stdout == b""
    text = result.stderr.decode()
    assert text.startswith("fletch: ") and says in text
    assert "hint: " in text


def test_no_command_is_usage_on_stderr(fletch):
    result = fletch()
    assert result.returncode == 2 and result.stdout == b""
    assert all(command in result.stderr.decode() for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(fletch, command):
    by_word, by_flag = fletch("help", command), fletch(command, "--help")
    assert by_word.returncode == by_flag.returncode == 0
    assert by_word.stdout == by_flag.stdout and by_word.stderr == b""
    text = by_word.stdout.decode()
    assert "Usage: fletch " + command in text
    assert "  fletch " + command in text.split("Examples:")[1]
    assert max(map(len, text.splitlines())) <= 100
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_help_lists_every_flag_of_the_contract(fletch):
    text = fletch("help", "embed").stdout.decode()
    for flag in ("-m, --model", "--revision", "--offline", "-i, --input", "--input-format", "--field", "-o, --output",
                 "--format", "--prompt-name", "--prompt", "--dimensions", "--normalize", "--pooling", "--dtype",
                 "--max-length", "--truncate", "--precision", "--threads", "--similarity", "--stats", "--progress",
                 "--quiet", "--keep-fields", "--on-error", "--invalid-utf8"):
        assert re.search(rf"{flag}\b", text), flag


def test_help_knows_every_option(fletch):
    options = json.loads(fletch("config", "--format", "json", model=False).stdout)
    text = fletch("help", "options").stdout.decode()
    assert len(options) > 40
    for option in options:
        assert option["flag"] in text and option["environment"] in text
        assert option["key"] in fletch("help", option["key"]).stdout.decode().splitlines()[0]


def test_version(fletch):
    for arguments in (["version"], ["--version"], ["-V"]):
        result = fletch(*arguments)
        assert result.returncode == 0
        assert re.fullmatch(r"fletch \d+\.\d+\.\d+\n", result.stdout.decode())
    assert "version" in json.loads(fletch("version", "--format", "json").stdout)


def test_arguments_behind_two_dashes_are_texts(embed):
    rows = embed.rows("tokenize", "--quiet", "--", "-x", "--stats")
    assert len(rows) == 2


def test_flags_may_stand_anywhere_and_join(embed):
    for arguments in (["-q", "tokenize", "hello"], ["tokenize", "hello", "-qv"],
                      ["tokenize", "hello", "--format=jsonl", "--quiet"]):
        assert len(embed.rows(*arguments)) == 1
