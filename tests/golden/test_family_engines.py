# SPDX-License-Identifier: Apache-2.0
"""test_family_engines.py - which engine runs which family, from the tables of the families and the engines.

What must never break: the table of docs/models.md is what fletch doctor says of a folder of each family and what the engines' caps lack of
it; every model_type that a family has stands in the page's table of families.

    python tests/golden/test_family_engines.py --write      the table of docs/models.md anew
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

import golden
from test_families import FAMILIES, FOLDER_OF

SOURCES = golden.ROOT / "src"
ENGINES = {"ONNX Runtime, by our graph": "engines/onnxruntime/graph.c", "CUDA": "engines/cuda/check.c"}
PUBLISHED = {"clip": "clip-whole"}  # its activation is the published one
TASKS = {"jina3_tasks": "separation", "jina5": "retrieval", "jina5_nano": "retrieval"}  # their features are those of an open task


def features_of(family: str) -> list[str]:
    """Those of the network: whether a model is of late interaction is its folder's."""
    folder = golden.HERE / "folders" / PUBLISHED.get(family, FOLDER_OF.get(family, "family-" + family.replace("_", "-")))
    done = subprocess.run([golden.BIN, "doctor", "-m", folder, "--format", "json"], capture_output=True, text=True, check=False,
                          env=os.environ | {"FLETCH_MODEL_TASK": TASKS.get(family, "")})
    told = {row["name"]: row["value"] for row in json.loads(done.stdout)["model"]}
    return [name for name, words in WORDS.items() if words in told.get("features", "") and name != "LATE"]


FEATURES = re.search(r"#define FL_FEATURES\(X\)(.*?)#define FL_NAME", (SOURCES / "model/encoder.h").read_text(), re.S)[1]
WORDS = dict(re.findall(r'X\((\w+), "([^"]+)"', FEATURES))
CAPS = {engine: set(re.findall(r"FL_CAN\((\w+)\)", (SOURCES / file).read_text())) for engine, file in ENGINES.items()}
NAMES = {family: re.search(r'^    \.name\s*= "([^"]+)"', text, re.M)[1] for family, text in FAMILIES.items()} | {"static": "static"}


def table() -> str:
    lines = [f"| families | {' | '.join(ENGINES)} |", "|---|---|---|"]
    alike = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for family, features in zip(NAMES, pool.map(features_of, NAMES)):
            lacks = tuple(", ".join(WORDS[name] for name in features if name not in caps) for caps in CAPS.values())
            alike.setdefault(lacks, []).append(NAMES[family])
    for lacks, names in sorted(alike.items(), key=lambda item: (item[0] != ("", ""), -len(item[1]), item[1])):
        lines.append(f"| {', '.join(sorted(names))} | {' | '.join('no: ' + words if words else 'yes' for words in lacks)} |")
    return "\n".join(lines) + "\n"


def test_the_document_has_this_table():
    golden.Generated("test_family_engines.py").check(table())


def test_every_model_type_stands_in_the_document():
    shared = (SOURCES / "model/families/shared_names.h").read_text()
    rows = re.search(r"\n\| family \| `model_type` .*?\n\n", (golden.ROOT / "docs/models.md").read_text(encoding="utf-8"), re.S)[0].strip().splitlines()[2:]
    told = {word for row in rows for word in re.findall(r"[\w-]+", row.split("|")[2])}
    for family, text in FAMILIES.items():
        types = re.search(r"\.model_types\s*= {(.*?)}", text + (shared if "FL_JINA5" in text else ""), re.S)
        assert types and set(re.findall(r'"([^"]+)"', types[1])) <= told, family


if __name__ == "__main__" and "--write" in sys.argv:
    golden.Generated("test_family_engines.py").write(table())
