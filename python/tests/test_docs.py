# SPDX-License-Identifier: Apache-2.0
"""docs/python.md: its programs run, each in an interpreter of its own, with the model of the tests for "medium"."""
import os
import re
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.split("\n")[0][:40])
def test_a_program_of_the_page_runs(program):
    for name in re.findall(r"^(?:import|from) (\w+)", program, re.M):
        pytest.importorskip(name, reason=f"{name} is not installed")
    code = "import fletch\n" + program.replace('"medium"', repr(MODEL))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def test_there_are_programs():
    assert len(PROGRAMS) >= 7
