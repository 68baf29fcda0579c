# SPDX-License-Identifier: Apache-2.0
"""README.md, docs/python.md and docs/scale.md: their programs run, each in an interpreter and a folder of its own, with the model
of the tests for "medium" and, where one asks for a database, a PostgreSQL of its own."""
import os
import re
import subprocess
import sys
import tempfile

import pytest
from conftest import MODEL, ROOT

PROGRAMS = [program for page in ("README.md", "docs/python.md", "docs/scale.md")
            for program in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)]


@pytest.fixture
def database():
    """The address of a PostgreSQL with pgvector that lives as long as the test. Started by root it runs as a user of its
    own, who must reach the folder."""
    server = pytest.importorskip("pgserver", reason="pgserver is not installed")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="fletch-") as folder:
        os.chmod(folder, 0o755)
        running = server.get_server(folder + "/database")
        yield running.get_uri()
        running.cleanup()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.split("\n")[0][:40])
def test_a_program_of_the_page_runs(program, request, tmp_path):
    for name in re.findall(r"^(?:import|from) (\w+)", program, re.M):
        pytest.importorskip(name, reason=f"{name} is not installed")
    environment = dict(os.environ)
    if "DATABASE_URL" in program:
        environment["DATABASE_URL"] = request.getfixturevalue("database")
    code = program.replace('"medium"', repr(MODEL))
    if "import fletch" not in program:  # it goes on from the page's first
        code = "import fletch\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_there_are_programs():
    assert len(PROGRAMS) >= 15
