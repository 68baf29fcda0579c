# SPDX-License-Identifier: Apache-2.0
"""conftest.py - the marker of tests that need the large model."""


def pytest_configure(config):
    config.addinivalue_line("markers", "full: needs the large model (FLETCH_MODEL_HIGH)")
