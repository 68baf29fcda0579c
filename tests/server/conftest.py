# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the server's tests; what they are made of is in serving.py."""
import pathlib
import subprocess
import sys
import tempfile

import clients
import pytest
import serving

sys.path.append(str(serving.ROOT / "tests" / "golden"))
from hub_stand_in import StandIn  # noqa: E402

# Files are handed out as they come (tools/check.sh), and one that takes long must not be the last: these come first.
LONG = ("test_transport_drain.py", "test_promises.py", "test_batches.py", "test_cuda_metrics.py", "test_transport_operations.py",
        "test_on_demand.py", "test_store.py", "test_deploy.py", "test_openapi.py", "test_rolling_restart.py")
NEED_CLIENTS = ("test_clients.py", "test_openapi.py", "test_deploy.py", "test_framing_peers.py", "test_otlp.py",
                "test_rolling_restart.py")


def pytest_collection_modifyitems(items):
    """The long files in their order, then the others. The clients are made meanwhile."""
    if any(item.path.name in NEED_CLIENTS for item in items):
        clients.begin()
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


def need_model():
    if not pathlib.Path(serving.MODEL, "model.safetensors").exists():
        pytest.skip("FLETCH_MODEL names no model folder (make model)")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all tests of a file; it must have survived them, and must end well."""
    need_model()
    running = serving.Server(tmp_path_factory.mktemp("server"))
    yield running
    assert running.process.poll() is None, running.log()
    assert running.ask("GET", "/ready").status == 200
    assert running.end() == 0, running.log()


@pytest.fixture
def start(tmp_path):
    """start("--flag", ...): a server of this test alone."""
    need_model()
    started = []

    def run(*flags, **options):
        started.append(serving.Server(tmp_path, *flags, **options))
        return started[-1]

    yield run
    for running in started:
        running.kill()


@pytest.fixture
def faulty(tmp_path):
    """faulty("--flag", ...): the whole program on an engine that goes wrong when told to."""
    if not pathlib.Path(serving.Faulty.PROGRAM).exists():
        pytest.skip("fletch_faulty is not built (ninja fletch_faulty)")
    started = []

    def run(*flags, **options):
        started.append(serving.Faulty(tmp_path, "--model", serving.MODEL, *flags, stdin=subprocess.PIPE, **options))
        return started[-1]

    yield run
    for running in started:
        running.kill()


@pytest.fixture
def short():
    """A folder for sockets, whose paths have at most 107 bytes: tmp_path may be longer."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="fletch-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def hub():
    """A hub on 127.0.0.1 that has org/tiny."""
    with StandIn() as hub:
        hub.add("org/tiny", serving.files_of(serving.SMALL))
        yield hub


@pytest.fixture
def pulling(start, hub):
    """pulling("--flag", …): a server that may pull from `hub`."""

    def run(*flags, **options):
        return start("--model", f"base={serving.SMALL}", "--server-allow-pull", *flags, model=False,
                     env={"HF_ENDPOINT": hub.url}, **options)

    return run
