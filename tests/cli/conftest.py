# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the command line tests; what they are made of is in commandline.py."""
import pathlib

import commandline
import pytest


@pytest.fixture
def fletch(tmp_path):
    """The program in an environment of its own."""
    return commandline.Fletch(tmp_path)


@pytest.fixture
def embed(fletch):
    """The same for runs that need the model's weights."""
    if not pathlib.Path(commandline.MODEL, "model.safetensors").exists():
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    return fletch
