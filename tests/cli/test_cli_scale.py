# SPDX-License-Identifier: Apache-2.0
"""docs/scale.md to the letter: one job by one process, as a Slurm array, as the Indexed Job of deploy/kubernetes and by Ray.

Must never break: whoever is killed, requeued or cancelled, `fletch run --check` says the hash of a run that nobody
disturbed. Slurm is the real one, and so is Ray; of Kubernetes there are the manifests, and what a kubelet makes of them is
in kubelet() below."""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys

import commandline
import jobs
import pytest
import slurm
import yaml
from commandline import until

PAGE = (commandline.ROOT / "docs/scale.md").read_text()
SHARDS = 40


def program(heading, first):
    """The indented block of a section that begins with this word."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]
    block, = [found for found in re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.M) if found.strip().startswith(first)]
    return re.sub(r"^    ", "", block.strip("\n"), flags=re.M)


def processes(words):
    """Those whose command line has these words, one after the other."""
    found = subprocess.run(["pgrep", "-f", words], text=True, capture_output=True, check=False).stdout
    return [int(pid) for pid in found.split()]


class Place:
    """/data of the page, in a folder: texts, a model, and the vectors to be; `fletch` first in PATH."""

    def __init__(self, folder, slow=0):
        self.folder, self.data = folder, folder / "data"
        (self.data / "texts").mkdir(parents=True)
        for number in range(60):
            (self.data / f"texts/{number:02}.txt").write_text("\n".join(jobs.lines(20 + number, number)))
        (self.data / "texts/60.jsonl").write_text('{"text": "a cat sat"}\n{bad\n')
        (self.data / "model").symlink_to(jobs.TOY)
        (folder / "deploy").symlink_to(commandline.ROOT / "deploy")
        (folder / "bin").mkdir()
        fletch = folder / "bin/fletch"  # slow: long enough that there is something to kill, cancel and requeue
        fletch.write_text(f'#!/bin/sh\nsleep {slow}\nexec {commandline.BIN} "$@"\n')
        fletch.chmod(0o755)
        self.environment = commandline.environment(folder, PATH=f"{folder}/bin:{os.environ['PATH']}")

    def here(self, text):
        return text.replace("/data", str(self.data))

    def start(self, *flags):
        return subprocess.Popen(["fletch", "run", "-q", "-m", "data/model", "--dtype", "int8", "-i", "data/texts", "-o",
                                 "data/vectors", *flags], cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL)

    def totals(self, *flags, code=4):
        done = subprocess.run([commandline.BIN, "run", "-o", self.data / "vectors", "--check", *flags], env=self.environment,
                              capture_output=True, text=True, timeout=commandline.WAIT)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def is_clean(self):
        return all(jobs.PART.fullmatch(name) or name in ("job.json", "_SUCCESS") for name in os.listdir(self.data / "vectors"))


@pytest.fixture(scope="module")
def want(tmp_path_factory):
    """What --check says of a run that nobody disturbed."""
    place = Place(tmp_path_factory.mktemp("calm"))
    assert place.start().wait(commandline.WAIT) == 4
    totals = place.totals()
    assert totals["parts"] == 61 and totals["refused"] == 1
    return totals


def test_one_process(tmp_path, want):
    place = Place(tmp_path)
    for parts in (1, 20, 40):
        process = place.start()
        until(lambda: len(list(place.data.glob("vectors/part-*.json"))) >= parts)
        process.kill()
        process.wait()
    assert place.start().wait(commandline.WAIT) == 4
    assert place.totals() == want and place.is_clean()


# ---- Slurm -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    one = slurm.begin(tmp_path_factory.mktemp("slurm") / "slurm")
    yield one
    one.close()


def submit(cluster, place, text):
    subprocess.run(["bash", "-euc", place.here(text)], cwd=place.folder, check=True, stdout=subprocess.DEVNULL,
                   env=place.environment | {"SLURM_CONF": cluster.environment["SLURM_CONF"]}, timeout=commandline.WAIT)


def worker_of(place, number, count=SHARDS):
    return until(lambda: processes(f"{place.data}/vectors --shard {number}/{count} "))[-1]


def test_a_slurm_array(tmp_path, cluster, want):
    """Two tasks are killed and one is requeued; the job that checks waits for all of them."""
    place = Place(tmp_path, slow=3)
    until(lambda: cluster.run("sinfo", "--noheader", "--format=%t").strip() == "idle", cluster.logs)
    submit(cluster, place, program("Slurm", "export IN="))
    number = min(int(line) for line in cluster.run("squeue", "--noheader", "--array", "--format=%F").split())
    for task in (1, 3):
        os.kill(worker_of(place, task), signal.SIGKILL)
    worker_of(place, 2)
    cluster.run("scontrol", "requeue", f"{number}_2")
    until((place.data / "vectors/_SUCCESS").exists, lambda: str(cluster.states()) + cluster.logs())
    states = {task: state for task, state in cluster.states().items() if task < SHARDS}
    assert len(states) == SHARDS and set(states.values()) == {"COMPLETED"}, states
    assert place.totals() == want and place.is_clean()


def test_a_slurm_task_that_is_cancelled(tmp_path, cluster, want):
    """It stays cancelled and costs its own shard, here a part of one file; submitted again it does that."""
    place, task, shards = Place(tmp_path, slow=3), SHARDS + 1, SHARDS + 4  # numbers that the other test has not
    part = place.data / f"vectors/part-{task:05}-00000.json"
    export = program("Slurm", "export IN=").splitlines()[0]

    def array(numbers):
        submit(cluster, place, f"{export}\nSHARDS={shards} sbatch --array={numbers} --cpus-per-task=4 deploy/slurm/fletch-run.sbatch")

    until(lambda: cluster.run("sinfo", "--noheader", "--format=%t").strip() == "idle", cluster.logs)
    array(f"{SHARDS}-{shards - 1}")
    worker_of(place, task, shards)
    number = max(int(line) for line in cluster.run("squeue", "--noheader", "--format=%F").split())
    cluster.run("scancel", f"{number}_{task}")
    until(lambda: set(cluster.states().values()) <= {"COMPLETED", "CANCELLED"}, cluster.logs)
    assert cluster.states()[task] == "CANCELLED" and not part.exists()
    array(task)
    until(lambda: cluster.states()[task] == "COMPLETED", cluster.logs)
    assert part.exists() and place.totals(code=1)["missing"] > 0
    assert place.start().wait(commandline.WAIT) == 4  # the shards that nobody submitted
    assert place.totals() == want and place.is_clean()


# ---- Kubernetes ------------------------------------------------------------------------------------------


def kubelet(place, manifest, victims=()):
    """Every index in a pod, `parallelism` at a time, until it ends well: what `podFailurePolicy` calls fatal ends the Job, else
    an index has `backoffLimitPerIndex` tries more. Of the victims the first pod is killed."""
    spec = yaml.safe_load(place.here((commandline.ROOT / "deploy/kubernetes" / manifest).read_text()))["spec"]
    container, = spec["template"]["spec"]["containers"]
    fatal = [code for rule in spec.get("podFailurePolicy", {"rules": []})["rules"] if rule["action"] == "FailJob"
             for code in rule["onExitCodes"]["values"]]
    variables = {one["name"]: one["value"] for one in container.get("env", [])}

    def index(number):
        words = [word.replace("$(JOB_COMPLETION_INDEX)", str(number)) for word in container["args"]]
        for attempt in range(1 + spec.get("backoffLimitPerIndex", spec.get("backoffLimit", 6))):
            pod = subprocess.Popen(["fletch", *words], cwd="/", env=place.environment | variables, stdout=subprocess.DEVNULL)
            if attempt == 0 and number in victims:
                pod.kill()
            code = pod.wait(commandline.WAIT)
            if code == 0:
                return attempt
            assert code not in fatal, (number, code)
        raise AssertionError(f"index {number} fails again and again")

    with concurrent.futures.ThreadPoolExecutor(spec.get("parallelism", 1)) as pool:
        return list(pool.map(index, range(spec.get("completions", 1))))


def test_an_indexed_job(tmp_path, want):
    place = Place(tmp_path)
    assert kubelet(place, "job.yaml", (0, 3, 39)) == [int(number in (0, 3, 39)) for number in range(SHARDS)]
    kubelet(place, "check.yaml")
    assert (place.data / "vectors/_SUCCESS").exists()
    assert place.totals() == want and place.is_clean()
    begun = place.data / "vectors/job.json"
    begun.write_text(begun.read_text().replace('"fletch":"', '"fletch":"9.'))
    with pytest.raises(AssertionError, match=", 2"):
        kubelet(place, "job.yaml")


# ---- Ray -------------------------------------------------------------------------------------------------


def python_with_ray():
    for python in (sys.executable, commandline.ROOT / ".cache/venv-python/bin/python"):
        find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
        if os.path.exists(python) and subprocess.run([python, "-c", find], check=False).returncode == 0:
            return str(python)
    return pytest.skip("ray is not installed (make python)")


def above(pid):
    """The worker of Ray that began a process; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            parent = int(stat.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/cmdline") as line:
            return parent if line.read().startswith("ray::shard") else None
    except OSError:
        return None


def test_tasks_of_ray(tmp_path, want):
    """Workers of Ray are killed, and the program below another."""
    python, place, told = python_with_ray(), Place(tmp_path, slow=1), tmp_path / "log"
    text = place.here(program("Ray", "import subprocess"))
    assert "ray.init()" in text
    text = text.replace("ray.init()", "ray.init(address='local', num_cpus=12, include_dashboard=False, log_to_driver=False)")
    with open(told, "wb") as log:
        driver = subprocess.Popen([python, "-c", text], env=place.environment, stdout=log, stderr=log)

    def running():
        """(Ray's worker, the program below it)"""
        assert driver.poll() is None, told.read_text()
        return [(above(pid), pid) for pid in processes(f"{place.data}/vectors --shard ") if above(pid)]

    try:
        killed = set()
        for which in (0, 0, 0, 1):
            pid = until(lambda: {pair[which] for pair in running()} - killed, told.read_text).pop()
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        assert driver.wait(commandline.WAIT) == 0, told.read_text()
    finally:
        driver.kill()
        driver.wait()
    assert place.totals("--finish") == want and place.is_clean()
