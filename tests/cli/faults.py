# SPDX-License-Identifier: Apache-2.0
"""faults.py - runs of which one allocation fails, for every allocation there is (tests/faults/failing_malloc.c)."""
import os
import subprocess

import commandline
import pytest

# One run takes as long as the whole program; where there are thousands, `make check` takes every so manieth.
EVERY = os.environ.get("FLETCH_TEST_FAULTS") == "all"


def library(folder, name="failing_malloc"):
    """A file of tests/faults as a library to be loaded in front."""
    path = folder / f"{name}.so"
    done = subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, commandline.ROOT / f"tests/faults/{name}.c"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "asan" in os.path.basename(os.path.dirname(commandline.BIN)):
        pytest.skip("a sanitizer brings its own heap")
    return path


class Faults:
    """Counts the allocations of a run, then makes them fail one by one."""

    def __init__(self, folder, run):
        self.folder, self.run = folder, run
        self.preload = library(folder)

    def once(self, at):
        """The run with allocation `at` failing: (its result, how many it made)."""
        count = self.folder / "count"
        result = self.run({"LD_PRELOAD": str(self.preload), "FAIL_FILE": str(count), "FAIL_AT": str(at)})
        return result, int(count.read_text()) if count.exists() else 0

    def loop(self, at_most=None):
        """Every run ends with the right result, or an error that says something; none by a signal."""
        good, count = self.once(0)
        assert good.returncode == 0 and count > 50, good.stderr
        step = 1 if EVERY or at_most is None else max(1, count // at_most)
        failed = 0
        for at in range(1, count + 1, step):
            result, _ = self.once(at)
            assert 0 <= result.returncode <= 4, (at, result.returncode, result.stderr)
            if result.returncode == 0:
                assert result.stdout == good.stdout, at
            else:
                failed += 1
                assert result.stderr.startswith(b"fletch: "), (at, result.stderr)
        assert failed > 0, "the failures reach the program"
