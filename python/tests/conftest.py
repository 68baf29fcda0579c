# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share: one open model, texts of every kind, a Python of their own.

Without installing: FLETCH_BUILD (default build) holds python/fletch, which tools/python.sh makes. With
FLETCH_PYTHON_INSTALLED set the installed package is tested instead."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FLETCH_BUILD", ROOT / "build")).resolve()
MODEL = os.environ.get("FLETCH_MODEL", str(ROOT / ".cache/models/all-MiniLM-L6-v2"))
DATA = pathlib.Path(os.environ.get("FLETCH_TEST_DATA", ROOT / "../shared/data"))
PROGRAM = os.environ.get("FLETCH_BIN", str(BUILD / "fletch"))
if "FLETCH_PYTHON_INSTALLED" not in os.environ:
    sys.path.insert(0, str(BUILD / "python"))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(BUILD / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])

import fletch  # noqa: E402

# For tests with the real libraries, which warn of much: a warning of fletch still fails them, its own (by its class) and one that
# it brings upon itself (by the module that is blamed).
PEERS_MAY_WARN = pytest.mark.filterwarnings("ignore", "error:::fletch", "error::fletch.TruncationWarning")
TEXTS = ["A cat sits on the mat.", "", "Grüße aus Köln", "猫は畳の上に座る", "naïve café 🙂", "x", "nul\0inside", "  spaces  ",
         "The quick brown fox jumps over the lazy dog. " * 8, "кошка сидит"]


@pytest.fixture(scope="session")
def model():
    with fletch.Model(MODEL) as opened:
        yield opened


@pytest.fixture(scope="session")
def vectors(model):
    """The rows of TEXTS, each embedded alone: what every other way must give, to the byte."""
    import numpy as np
    return np.stack([model.embed(text) for text in TEXTS])


@pytest.fixture
def python():
    """Run a program with this interpreter and what fletch needs: python(code) -> what it printed."""
    def run(code: str, *flags: str, code_expected: int = 0, **environment: str) -> str:
        head = f"import fletch, sys, os\nMODEL = {MODEL!r}\n"
        done = subprocess.run([sys.executable, "-X", "dev", "-W", "error", *flags, "-c", head + code],
                              capture_output=True, text=True, timeout=300, env=os.environ | environment)
        assert done.returncode == code_expected, (done.returncode, done.stdout, done.stderr)
        return done.stdout.strip() + done.stderr.strip()
    return run
