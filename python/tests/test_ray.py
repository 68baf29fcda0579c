# SPDX-License-Identifier: Apache-2.0
"""fletch.ray with the real Ray on this machine.

Must never break: every id once, whatever is killed; rows are those of the model; a pool that leaves no CPU to the
readers is refused by name, not a hang."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT

import fletch

ray = pytest.importorskip("ray", reason="ray is not installed")
pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402
import ray.data  # noqa: E402

import fletch.ray  # noqa: E402

# Ray warns of its own settings when it copies them, and of blocks that come one by one on a busy machine.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]

TOY = str(ROOT / "tests/golden/folders/plain-bert")
ROWS = 30_000
MARK = f"ours-{os.getpid()}"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    draw, folder = random.Random(1), tmp_path_factory.mktemp("ray") / "in"
    folder.mkdir()
    for part in range(10):
        texts = [" ".join(draw.choices("the cat sat on a mat and ran".split(), k=20)) for _ in range(ROWS // 10)]
        texts[0] = None
        pq.write_table(pa.table({"id": range(part * ROWS // 10, (part + 1) * ROWS // 10), "text": texts}),
                       folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Three CPUs, if only by name: two for actors, one for the readers."""
    before = signal.getsignal(signal.SIGTERM)
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False,
             runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TEST_RAY": MARK}})
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)  # Ray leaves its own, and workers that later tests fork would not end by it


def actors():
    """Processes of the pool, and of this cluster alone."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            ours = f"TEST_RAY={MARK}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if ours and b"MapWorker" in (folder / "cmdline").read_bytes():
                yield int(folder.name)
        except OSError:
            pass  # gone meanwhile


def test_every_id_once_while_actors_are_killed(source, tmp_path):
    stop, killed = threading.Event(), []

    def kill():
        while not stop.is_set() and len(killed) < 3:
            for pid in actors():
                if pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    break
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        ds = fletch.ray.embed(ray.data.read_parquet(str(source)), model=TOY, concurrency=2, batch_size=50)
        ds.write_parquet(str(tmp_path / "out"))
    finally:
        stop.set()
        killer.join()
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert killed and table["id"].to_pylist() == list(range(ROWS))
    assert table["embedding"].null_count == 10 and table["embedding_refused"][0].as_py() == "the text is missing"
    with fletch.Model(TOY) as model:
        want = model.embed(pq.read_table(source / "0.parquet")["text"][1:], truncate="right")
    got = table["embedding"].slice(1, len(want)).combine_chunks().flatten().to_numpy()
    assert got.tobytes() == want.tobytes()


DRIVER = """
import sys
import ray
import fletch.ray
source, target, model, checkpoint = sys.argv[1:]
ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
ds = fletch.ray.embed(ray.data.read_parquet(source, override_num_blocks=10), model=model, concurrency=1, batch_size=20,
                      resume_id="id", resume_path=checkpoint)
ds.write_parquet(target)
"""


def test_a_driver_that_is_killed_goes_on(source, tmp_path):
    target, command = tmp_path / "out", [sys.executable, "-c", DRIVER, str(source), str(tmp_path / "out"), TOY,
                                         str(tmp_path / "checkpoint")]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while driver.poll() is None and not any(target.glob("*.parquet")):
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    table = pq.read_table(target).sort_by("id")
    assert table["id"].to_pylist() == list(range(ROWS)) and table["embedding"].null_count == 10


NODES = """
import os
import pathlib
import signal
import sys
import threading
import time
import ray
import fletch.ray
from ray.cluster_utils import Cluster

source, target, model = sys.argv[1:]
# Ray notices within seconds instead of a minute that nobody answers.
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False, "_system_config": {
    "health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}})
raylet, = cluster.add_node(num_cpus=2).all_processes["raylet"]
ray.init(address=cluster.address, log_to_driver=False)


def work():
    # CPU ticks of the actors of the node that is to be killed, once they have loaded fletch.
    ticks = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == raylet.process.pid and b"MapWorker" in (folder / "cmdline").read_bytes():
                ticks += int(fields[11]) * ("/_fletch." in (folder / "maps").read_text())
        except OSError:
            pass  # gone meanwhile
    return ticks


def kill():
    while not (begun := work()):
        time.sleep(0.01)
    while work() < begun + 30:
        time.sleep(0.01)
    os.kill(raylet.process.pid, signal.SIGKILL)
    print("killed", flush=True)


killer = threading.Thread(target=kill, daemon=True)
killer.start()
ds = fletch.ray.embed(ray.data.read_parquet(source).repartition(60), model=model, concurrency=3, batch_size=20)
ds.write_parquet(target)
assert not killer.is_alive(), "the job was over before"
while len([one for one in ray.nodes() if one["Alive"]]) > 1:
    time.sleep(0.1)
print("over", flush=True)
"""


def test_every_id_once_where_a_node_is_killed(source, tmp_path):
    """A head and a node with an actor or two of the pool; what the head has left does for all of it."""
    target = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", NODES, str(source), str(target), TOY], capture_output=True, text=True,
                          timeout=300, check=False)  # 1: what Ray clears away at the end, a node that is gone as well
    assert {"killed", "over"} <= set(done.stdout.splitlines()), (done.stdout[-3000:], done.stderr[-3000:])
    table = pq.read_table(target).sort_by("id")
    assert table["id"].to_pylist() == list(range(ROWS)) and table["embedding"].null_count == 10


def test_a_node_with_another_version_ends_the_job(source, monkeypatch):
    monkeypatch.setattr(fletch._fletch, "version", "0.0.1")
    with pytest.raises(Exception, match=r"the driver 0\.0\.1: install the same"):
        fletch.ray.embed(ray.data.read_parquet(str(source)).limit(10), model=TOY).materialize()


def test_a_pool_that_takes_every_cpu_is_refused(source):
    ds = ray.data.read_parquet(str(source))
    with pytest.raises(ValueError, match="3 of the cluster's 3 CPUs; leave one"):
        fletch.ray.embed(ds, model=TOY, concurrency=3)
    with pytest.raises(ValueError, match="at least 1"):
        fletch.ray.embed(ds, model=TOY, concurrency=0)
    with pytest.raises(ValueError, match="go together"):
        fletch.ray.embed(ds, model=TOY, resume_id="id")
