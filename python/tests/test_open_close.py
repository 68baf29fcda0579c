# SPDX-License-Identifier: Apache-2.0
"""Models that are opened and closed again leave nothing behind, whatever provider runs them (FLETCH_TEST_FULL: 1,000 rounds)."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VULKAN, LIBRARIES = ROOT / ".cache/vulkan", ROOT / ".cache"
SOFTWARE = {"VK_ICD_FILENAMES": str(VULKAN / "lavapipe.json"), "LD_LIBRARY_PATH": str(VULKAN / "lib")}
PROVIDERS = {
    "cpu": ({"provider.order": "cpu"}, {}),
    "onnxruntime": ({"provider.order": "cpu", "provider.engine": "onnxruntime", "onnxruntime.library": str(LIBRARIES / "onnxruntime")}, {}),
    "openvino": ({"provider.order": "openvino", "openvino.device": "cpu", "onnxruntime.library": str(LIBRARIES / "onnxruntime-openvino")}, {}),
    "plugin": ({"provider.order": "plugin", "onnxruntime.library": str(LIBRARIES / "onnxruntime")}, {}),
    "webgpu": ({"provider.order": "webgpu", "onnxruntime.library": str(LIBRARIES / "onnxruntime-webgpu")}, SOFTWARE),
}
ROUNDS = 1000 if "FLETCH_TEST_FULL" in os.environ else 100
# A software device's own threads and compiler hold 8 MB more at one look than at the next, so the lowest of 20 looks counts.
CODE = f"""
import os, sys
import fletch
def bytes_now():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
config, folder = eval(sys.argv[1]), sys.argv[2]
looks, rows = [], set()
for n in range({ROUNDS}):
    with fletch.Model(folder, config=config) as model:
        rows.add(model.embed(["a b"]).tobytes())
    looks.append(bytes_now())
print(min(looks[-20:]) - min(looks[20:40]), len(os.listdir("/proc/self/fd")), len(rows))
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="memory is read as Linux tells it")
@pytest.mark.parametrize("name", PROVIDERS)
def test_nothing_is_left(name, tmp_path):
    config, environment = PROVIDERS[name]
    if name == "plugin":
        config = config | {"onnxruntime.provider_library": str(tmp_path / "libfailing_provider.so")}
        subprocess.run(["cc", "-shared", "-fPIC", "-o", config["onnxruntime.provider_library"],
                        ROOT / "tests/faults/failing_provider.c"], check=True)
    for needed in [config.get("onnxruntime.library"), *environment.values()]:
        if needed and not pathlib.Path(needed).exists():
            pytest.skip(f"no {needed}")
    done = subprocess.run([sys.executable, "-c", CODE, repr(config), str(ROOT / "tests/golden/folders/mpnet")],
                          env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    grown, files, rows = map(int, done.stdout.split())
    assert grown < (8 << 20) and files < 20 and rows == 1, (grown, files, rows)
