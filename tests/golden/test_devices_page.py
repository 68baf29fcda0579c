# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/devices.md and docs/providers.md, typed as they stand in an empty folder: a user with another GPU
comes from `pip download` to vectors that are the processor's. The devices are Vulkan in software and the processor.

`make check` has the libraries in place of the downloads; FLETCH_TEST_FULL downloads them as well.
"""
import json
import os
import pathlib
import re
import subprocess

import pytest

import golden

CACHE = golden.ROOT / ".cache"
VULKAN = CACHE / "vulkan"
MODEL = golden.HERE / "folders/mpnet"
FULL = "FLETCH_TEST_FULL" in os.environ
SOFTWARE = {"VK_ICD_FILENAMES": str(VULKAN / "lavapipe.json"), "LD_LIBRARY_PATH": str(VULKAN / "lib"),
            "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1", "FLETCH_OPENVINO_DEVICE": "cpu"}
# The folder that a block's download fills, and what is in it already.
FOLDERS = {"webgpu": ["onnxruntime-webgpu"], "openvino": ["onnxruntime-openvino"], "plugin": ["onnxruntime", "onnxruntime-ep-webgpu"]}


def block(page: str, folder: str) -> list[str]:
    """The indented lines that follow each other, of which the first fills the folder."""
    for lines in re.findall(r"(?:^    .+\n)+", (golden.ROOT / "docs" / page).read_text(encoding="utf-8"), re.M):
        if "pip download" in lines and f"-d {folder}\n" in lines:
            return [line[4:] for line in lines.splitlines()]
    raise AssertionError(f"{page} has no such block")


@pytest.mark.parametrize("page, folder", [("devices.md", "webgpu"), ("devices.md", "openvino"), ("providers.md", "webgpu"),
                                          ("providers.md", "openvino"), ("providers.md", "plugin")])
def test_a_page_as_it_stands(page, folder, tmp_path):
    missing = [name for name in FOLDERS[folder] if not (CACHE / name).exists()]
    if missing or (folder != "openvino" and not (VULKAN / "lavapipe.json").exists()):
        pytest.skip(f"no {' and no '.join(missing) or 'Vulkan in software'}: tools/onnxruntime.sh, tools/vulkan.sh")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/fletch").symlink_to(golden.BIN)
    pip = golden.ROOT / "build/pip/bin"
    path = f"{tmp_path / 'bin'}:{pip}:{os.environ['PATH']}"
    for line in block(page, folder):
        if line.startswith("pip") and not (FULL and (pip / "pip").exists()):
            (tmp_path / folder).mkdir(exist_ok=True)
            for name in FOLDERS[folder]:
                for file in (CACHE / name).glob("lib*"):
                    if not (tmp_path / folder / file.name).exists():
                        (tmp_path / folder / file.name).symlink_to(file)
            continue
        line = line.replace("MODEL", str(MODEL)).replace("fletch bench", "fletch bench --seconds 1")
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True,
                              env=os.environ | SOFTWARE | {"PATH": path})
        assert done.returncode == 0, line + "\n" + done.stderr
        if "fletch embed" in line:
            assert json.loads(done.stdout)["embedding"] and "falling back" not in done.stderr, done.stderr
    for file in tmp_path.glob("*-verify.txt"):
        assert file.read_text().startswith("same space") and f"provider: cpu there, {folder} here" in file.read_text()
    for file in tmp_path.glob("*-report.txt"):
        assert f"provider.{folder}" in file.read_text() and "usable" in file.read_text()
