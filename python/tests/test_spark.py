# SPDX-License-Identifier: Apache-2.0
"""fletch.spark with the real Spark on this machine: a driver, two executors, Python workers.

Must never break: every id once, whatever is killed; rows are those of the model in every dtype; what is wrong with a
text is a word in its row and ends no task."""
import os
import pathlib
import random
import shutil
import signal
import sys
import threading
import time

import pytest
from conftest import PEERS_MAY_WARN, ROOT

import fletch

pytest.importorskip("pyspark", reason="pyspark is not installed")
pa = pytest.importorskip("pyarrow")
if not shutil.which("java"):
    pytest.skip("java is not installed", allow_module_level=True)
import pyarrow.parquet as pq  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

import fletch.spark  # noqa: E402

# PySpark warns of versions of pandas.
pytestmark = [pytest.mark.xdist_group("spark"), PEERS_MAY_WARN]

TOY = str(ROOT / "tests/golden/folders/plain-bert")
ROWS = 6_000
MARK = f"ours-{os.getpid()}"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    draw, folder = random.Random(1), tmp_path_factory.mktemp("spark") / "in"
    folder.mkdir()
    texts = [" ".join(draw.choices("the cat sat on a mat and ran".split(), k=20)) for _ in range(ROWS)]
    texts[0] = None
    pq.write_table(pa.table({"id": range(ROWS), "text": texts}), folder / "all.parquet")
    return folder


@pytest.fixture(scope="module")
def spark():
    """Two executors in processes of their own, so that one can be killed; a task is tried eight times."""
    os.environ |= {"TEST_SPARK": MARK, "PYSPARK_PYTHON": sys.executable}
    session = (SparkSession.builder.master("local-cluster[2,1,1024]").appName("test")
               .config("spark.ui.enabled", "false").config("spark.task.maxFailures", "8")
               .config("spark.driver.memory", "512m").config("spark.executor.memory", "512m")
               .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100").config("spark.sql.shuffle.partitions", "1")
               .config("spark.log.level", "ERROR").getOrCreate())
    yield session
    session.stop()


def processes(word):
    """Of this test alone, whose command line has the word."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            ours = f"TEST_SPARK={MARK}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if ours and word in (folder / "cmdline").read_bytes():
                yield int(folder.name)
        except OSError:
            pass  # gone meanwhile


def test_every_id_once_while_workers_and_an_executor_are_killed(spark, source, tmp_path):
    over, killed = threading.Event(), []

    def kill():
        for word, count in ((b"pyspark.daemon", 2), (b"CoarseGrainedExecutorBackend", 1)):
            while count and not over.is_set():
                for pid in list(processes(word))[-1:]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(word)
                    count -= 1
                time.sleep(0.5)

    frame = spark.read.parquet(str(source)).repartition(12)
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        fletch.spark.embed(frame, model=TOY).write.parquet(str(tmp_path / "out"))
    finally:
        over.set()
        killer.join()
    table = pq.read_table(tmp_path / "out").sort_by("id")
    assert b"CoarseGrainedExecutorBackend" in killed and len(killed) == 3
    assert table["id"].to_pylist() == list(range(ROWS))
    assert table["embedding"].null_count == 1 and table["embedding_refused"][0].as_py() == "the text is missing"
    with fletch.Model(TOY) as model:
        want = model.embed(pq.read_table(source)["text"][1:], truncate="right")
    got = table["embedding"].slice(1).combine_chunks().flatten().to_numpy()
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "binary", "ubinary"])
def test_rows_of_every_dtype(spark, source, dtype):
    frame = spark.read.parquet(str(source)).where("id < 20").orderBy("id")
    rows = fletch.spark.embed(frame, model=TOY, output="v", dtype=dtype, dimensions=16).collect()
    with fletch.Model(TOY) as model:
        want = model.embed([row.text for row in rows[1:]], dtype=dtype, dimensions=16, truncate="right")
    assert rows[0].v is None and rows[0].v_refused == "the text is missing"
    assert [list(row.v) for row in rows[1:]] == want.tolist() and {row.v_refused for row in rows[1:]} == {None}


def test_a_node_with_another_version_ends_the_job(spark, monkeypatch):
    frame = spark.createDataFrame([(1, "a")], "id int, text string").coalesce(1)
    monkeypatch.setattr(fletch._fletch, "version", "0.0.1")
    with pytest.raises(Exception, match=r"the driver 0\.0\.1: install the same"):
        fletch.spark.embed(frame, model=TOY).collect()


def test_what_cannot_work_is_said_at_once(spark):
    frame = spark.createDataFrame([(1, "a")], "id int, text string")
    with pytest.raises(ValueError, match='no column "body"; the columns are id, text'):
        fletch.spark.embed(frame, column="body")
    with pytest.raises(TypeError, match='"id" is int, not string'):
        fletch.spark.embed(frame, column="id")
    with pytest.raises(ValueError, match='already has a column "text"'):
        fletch.spark.embed(frame, output="text")
    with pytest.raises(ValueError, match="dtype must be one of"):
        fletch.spark.embed(frame, dtype="float64")


def test_no_row_is_no_failure(spark):
    frame = spark.createDataFrame([], "id int, text string")
    made = fletch.spark.embed(frame, model=TOY)
    assert made.collect() == [] and made.schema["embedding"].dataType.simpleString() == "array<float>"


def test_a_mistake_ends_the_job_with_its_words(spark):
    frame = spark.createDataFrame([(1, "a")], "id int, text string").coalesce(1)
    with pytest.raises(Exception, match="no.such.option"):
        fletch.spark.embed(frame, model=TOY, options={"config": {"no.such.option": 1}}).collect()
