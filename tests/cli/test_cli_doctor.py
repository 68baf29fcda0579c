# SPDX-License-Identifier: Apache-2.0
"""doctor says what it found, tests the arithmetic, and its exit code can be relied on."""
import hashlib
import json
import platform
import shutil

import commandline
import numpy as np
import pytest

SENTENCES = ["A cat sits on the mat.", "A feline rests on a rug.", "The stock market fell sharply today."]


def report(result):
    sections = json.loads(result.stdout)
    return {name: {item["name"]: (item["value"], item["origin"]) for item in items} for name, items in sections.items()}


def test_all_is_well(embed):
    text = embed("doctor")
    assert text.returncode == 0, text.stdout.decode()
    sections = report(embed("doctor", "--format", "json"))
    assert sections["self-test"]["vectors"][0] == "ok"
    assert sections["model"]["pooling"] == ("mean", "1_Pooling/config.json")
    assert sections["model"]["max_length"] == ("256", "sentence_bert_config.json")
    assert sections["model"]["cpu.isa"][1], "why this instruction set"
    assert sections["machine"]["provider.cpu"][0].startswith("usable")
    assert sections["machine"]["provider.cuda"][0].split(":")[0] in ("usable", "no")
    for name in list(sections["machine"]) + list(sections["model"]):
        assert name in text.stdout.decode()


@pytest.mark.parametrize("family, name, layers, switch", [
    ("gte", "gte", 3, "rotary positions"), ("modernbert", "modernbert", 4, "attention in a window"),
    ("nomic-moe", "nomic_bert with experts", None, "mixtures of experts"), ("qwen3", "qwen3", 3, "causal attention"),
    ("gemma3", "gemma3_text", 3, "further norms"), ("jina-qk", "jina_bert with q/k norm", 3, "over all heads"), ("jina3", "jina_embeddings_v3", 3, "rotary positions"),
    ("xlm-roberta", "roberta", 3, None), ("distilbert", "distilbert", None, None), ("eurobert", "eurobert", 3, "RMS norms"),
    ("llama", "llama", 3, "RMS norms"), ("static", "static", 0, "models without layers"),
])
def test_family_switches_and_limits(fletch, family, name, layers, switch):
    """What config.json says of each family, in its words and with the limit that sentence_bert_config.json sets."""
    folder = commandline.ROOT / "tests/golden/folders" / f"family-{family}"
    told = report(fletch("doctor", "-m", folder, "--format", "json"))["model"]
    assert told["architecture"][0].startswith(f"{name}: " if layers is None else f"{name}: {layers} layers")
    assert told.get("features", ("",))[0] == "" if switch is None else switch in told["features"][0]
    if family != "static":
        assert told["max_length"] == ("200", "sentence_bert_config.json")
        assert told["positions"][0] == ("200" if family == "xlm-roberta" else "256")


def test_options_show_as_origins_and_skip_the_test(embed):
    sections = report(embed("doctor", "--format", "json", "--pooling", "cls", env={"FLETCH_MODEL_MAX_LENGTH": "64"}))
    assert sections["model"]["pooling"][0] == "cls" and "flag" in sections["model"]["pooling"][1]
    assert sections["model"]["max_length"] == ("64", "FLETCH_MODEL_MAX_LENGTH")
    assert sections["self-test"]["vectors"][0] == "skipped"


def test_batches_are_sized_unless_told_not_to(embed):
    """io.batch_optimization: what the engine gains by and memory holds, or batch.max_tokens and max_texts as they are."""
    def budget(*flags):
        found = report(embed("doctor", "--format", "json", "--memory-limit", "400MB", *flags))
        return [int(word) for word in found["model"]["batch"][0].split() if word.isdigit()]
    assert budget("--io-batch-optimization=false") == [16384, 64]
    assert budget()[0] < 16384
    assert budget("--batch-max-tokens=2000", "--batch-max-texts=10") == [2000, 10]


def test_every_instruction_set_passes(embed):
    for isa in ("ref", "avx2"):
        result = embed("doctor", "--format", "json", "--cpu-isa", isa)
        if result.returncode == 0:
            assert report(result)["self-test"]["vectors"][0] == "ok"
        else:
            assert isa != "ref", "the reference runs everywhere"


@pytest.mark.parametrize("preset", ["throughput", "max"])
def test_presets_take_what_gains_and_say_why(embed, fletch, preset):
    """int16 where its kernels outrun float32 and the family may have it, else fp32 (docs/precision.md)."""
    told = report(embed("doctor", "--preset", preset, "--provider-order", "cpu", "--format", "json"))
    isa, (taken, why) = told["model"]["cpu.isa"][0], told["model"]["cpu.precision"]
    gains = isa == "amx" or "vnni" in isa or isa in ("avx2", "avx512bf16")
    assert taken == ("int16" if gains else "fp32") and why.startswith("fast: ") and isa in why
    assert told["model"]["precision"] == (taken, f"preset {preset}") and told["self-test"]["vectors"][0] == "ok"
    for name, fits in ("family-modernbert", True), ("family-nomic-moe", False):
        folder = commandline.ROOT / "tests/golden/folders" / name
        told = report(fletch("doctor", "-m", folder, "--preset", preset, "--provider-order", "cpu", "--format", "json"))["model"]
        assert told["cpu.precision"][0] == ("int16" if gains and fits else "fp32")
        assert fits or not gains or "only in fp32" in told["cpu.precision"][1]


def test_what_a_preset_takes_gives_the_bytes_of_its_name(embed):
    """A preset says no more than --precision does, and --precision wins over it."""
    taken = report(embed("doctor", "--preset", "throughput", "--format", "json"))["model"]["precision"][0]
    text = ["embed", "ein Text", "--format", "json"]
    assert embed(*text, "--preset", "throughput").stdout == embed(*text, "--precision", taken).stdout
    assert embed(*text, "--preset", "throughput", "--precision", "fp32").stdout == embed(*text).stdout


def test_a_missing_model_is_3_and_nothing_is_fetched(fletch):
    result = fletch("doctor", model=False)
    assert result.returncode == 3
    assert "machine" in result.stdout.decode() and "fletch model pull" in result.stdout.decode()
    sections = report(fletch("doctor", "--format", "json", model=False))
    assert "problem" in sections["model"] and "self-test" not in sections


def test_another_model_skips_and_a_wrong_result_fails(embed, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(commandline.MODEL, folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1000] ^= 0x10
    (folder / "model.safetensors").write_bytes(weights)
    result = embed("doctor", "-m", folder)
    assert result.returncode == 0 and "skipped" in result.stdout.decode()
    # the same weights under a tokenizer that maps words elsewhere: the vectors must differ
    shutil.copy(commandline.MODEL + "/model.safetensors", folder / "model.safetensors")
    text = (folder / "tokenizer.json").read_text()
    first, second = '"cat": 4937', '"mat": 13523'
    if first not in text or second not in text:
        first, second = '"cat":4937', '"mat":13523'
    assert first in text and second in text
    colon = first.split('"')[2].replace("4937", "")
    (folder / "tokenizer.json").write_text(
        text.replace(first, f'"cat"{colon}13523').replace(second, f'"mat"{colon}4937'))
    result = embed("doctor", "-m", folder)
    assert result.returncode == 1 and "FAILED" in result.stdout.decode()


def test_a_report_names_the_system_and_no_home(embed, tmp_path):
    """What somebody sends from a machine that nobody here has: all of the doctor, kernel and compiler, no path of theirs."""
    home = tmp_path / "somebody"
    home.mkdir()
    (home / "model").symlink_to(commandline.MODEL)
    sent = embed("doctor", "--report", "--format", "json", "-m", home / "model", env={"HOME": str(home)})
    assert sent.returncode == 0 and str(home).encode() not in sent.stdout and b"~/model" in sent.stdout
    sections = report(sent)
    assert sections["system"]["kernel"][0].startswith(f"{platform.system()} {platform.release()}")
    rows = np.frombuffer(embed("embed", "--format", "raw", *SENTENCES).stdout, np.float32)
    assert sections["self-test"]["vectors.sha256"][0] == hashlib.sha256(rows.tobytes()).hexdigest()
    assert "system" not in report(embed("doctor", "--format", "json"))


@pytest.mark.parametrize("home, model, told", [
    ("C:/Users/ann", "C:/Users/ann/m", "~/m"), ("C:\\Users\\ann", "C:/Users/ann/m", "~/m"),
    ("/home/ann", "/home/anna/m", "/home/anna/m"), ("/", "/srv/m", "/srv/m")])
def test_a_home_is_found_by_whole_names_and_as_windows_writes_it(fletch, home, model, told):
    sent = fletch("doctor", "--report", "--format", "json", "-m", model, env={"HOME": home})
    assert sent.returncode == 3 and told in report(sent)["model"]["problem"][0]
    assert told == model or "ann" not in sent.stdout.decode()


@pytest.mark.parametrize("arguments", [["doctor", "x"]])
def test_arguments_are_refused(fletch, arguments):
    assert fletch(*arguments).returncode == 2
