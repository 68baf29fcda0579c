# SPDX-License-Identifier: Apache-2.0
"""tools/bench.sh compare keeps a history: medians of ratios with their spread, per day, commits and machine."""
import csv
import subprocess
import sys

import golden

ENGINE = """#!/bin/sh
echo "cpu.isa  avx9  (avx9: the best on this machine; Zen 9 has everything)"
[ "$4" = none ] && exit
n=$(cat {here}/n); echo $((n + 1)) >{here}/n
echo "short 9 texts, median $(({speed} + {step} * n)).0 tok/s"
echo "latency of one text of 16 tokens: p50 2.0 ms"
"""
KERNELS = "#!/bin/sh\necho 'avx9 layer_norm of 384: {time} ns a row'\n"


def build(folder, speed: int, step: int, time: str):
    folder.mkdir()
    (folder / "n").write_text("0")
    for name, text in (("bench_engine", ENGINE), ("fl-kernels", KERNELS)):
        (folder / name).write_text(text.format(here=folder, speed=speed, step=step, time=time))
        (folder / name).chmod(0o755)
    return folder


def compare(before, after, results, *words, name="b1"):
    command = [sys.executable, golden.ROOT / "bench/compare.py", before, after, "--names", "a1", name, "--results", results,
               "--rounds", "3", "--formats", "fp32", *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file = results / "history.csv"
    return list(csv.DictReader(file.open())) if file.exists() else []


def test_ratios_their_spread_and_who_is_kept(tmp_path):
    before, after = build(tmp_path / "before", 100, 0, "50.0"), build(tmp_path / "after", 110, 10, "40.0")
    assert compare(before, after, tmp_path, name="b1+") == []
    (after / "n").write_text("0")
    rows = {row["what"]: row for row in compare(before, after, tmp_path)}
    short = rows["engine fp32 short"]
    assert (short["ratio"], short["lowest"], short["highest"], short["rounds"]) == ("1.200", "1.100", "1.300", "3")
    assert rows["layer_norm of 384"]["ratio"] == "1.250" and rows["engine fp32 one text of 16"]["ratio"] == "1.000"
    assert short["machine"] == "Zen 9 (avx9)" and (short["before"], short["after"]) == ("a1", "b1") and float(short["load"]) >= 0
    again = {row["what"]: row for row in compare(before, after, tmp_path, "--part", "engine")}
    assert len(again) == len(rows) and again["engine fp32 short"]["ratio"] == "1.500", "replaced, and the kernels' row stays"
    other = compare(before, after, tmp_path, "--part", "kernels", "--keep", name="b2+")
    assert [row["after"] for row in other].count("b2+") == 1 and len(other) == len(rows) + 1
    assert compare(before, after, tmp_path, "--no-keep", name="b3") == other
    text = (tmp_path / "history.md").read_text()
    assert "Zen 9 (avx9): a1 to b1" in text and "| layer_norm of 384 | 1.250 | 1.250 to 1.250 |" in text
