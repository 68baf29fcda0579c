# SPDX-License-Identifier: Apache-2.0
"""deploy/slurm with a real Slurm: slurmctld and slurmd on this machine, as whoever runs the tests, on ports of their own.

Must never break: an array of 40 of which one task is killed, one requeued and one cancelled. What was killed comes back by
itself, what was cancelled stays cancelled and costs its own shard; submitted again it is done, and the job has the hash of
a run that nobody disturbed."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import commandline
import jobs
import pytest
from jobs import Job

TASKS, AUTH = 40, "/usr/lib/x86_64-linux-gnu/slurm-wlm/auth_none.so"
SCRIPT = commandline.ROOT / "deploy/slurm/fletch-run.sbatch"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm:
    """One controller and one node of 8 processors, whatever the machine has."""

    def __init__(self, place: pathlib.Path):
        self.place, user = place, subprocess.check_output(["id", "-un"], text=True).strip()
        host = socket.gethostname().partition(".")[0]
        for name in ("state", "spool", "log"):
            (place / name).mkdir()
        (place / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=1
ReturnToService=2
KillWait=10
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        self.environment = os.environ | {"SLURM_CONF": str(place / "slurm.conf")}
        self.daemons = [self.start("slurmctld", "-D", "-i"), self.start("slurmd", "-D", "-N", host)]

    def start(self, *command):
        with open(self.place / "log" / command[0], "wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)

    def run(self, *command, **more):
        return subprocess.run([str(word) for word in command], env=self.environment | more, cwd=self.place, text=True,
                              capture_output=True, timeout=commandline.WAIT, check=True).stdout

    def states(self):
        """{task: state} of every job that the controller knows, once it answers."""
        try:
            lines = self.run("squeue", "--noheader", "--states=all", "--array", "--format=%K %T").splitlines()
        except subprocess.CalledProcessError:
            return {}
        return {int(task): state for task, state in map(str.split, lines) if task.isdigit()}

    def close(self):
        for daemon in reversed(self.daemons):
            os.killpg(daemon.pid, signal.SIGTERM)
            daemon.wait(commandline.WAIT)


@pytest.fixture
def slurm(tmp_path):
    for name in ("slurmctld", "slurmd", "sbatch"):
        if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            pytest.skip(f"{name} is not installed")
    if not os.path.exists(AUTH):
        pytest.skip("this Slurm has no auth/none")
    place = tmp_path / "slurm"
    place.mkdir()
    one = Slurm(place)
    yield one
    one.close()


def until(condition, why):
    end = time.monotonic() + commandline.WAIT
    while not (found := condition()):
        assert time.monotonic() < end, why()
        time.sleep(0.2)
    return found


def test_an_array_with_tasks_killed_requeued_and_cancelled(tmp_path, slurm):
    source = jobs.make_input(tmp_path / "in", 12_000)
    calm = Job(tmp_path, source, "calm")
    calm.run()
    want = calm.ask("--check")["sha256"]
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin/fletch"  # long enough that there is something to kill, cancel and requeue
    slow.write_text(f'#!/bin/sh\nsleep 2\nexec {commandline.BIN} "$@"\n')
    slow.chmod(0o755)
    job = Job(tmp_path, source)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "IN": str(source), "OUT": str(job.out),
                   "FLAGS": f"-q -m {jobs.TOY} --split-bytes 4KiB"}

    def logs():
        return "".join(path.read_text(errors="replace")[-1500:] for path in (slurm.place / "log").iterdir())

    def running(task):
        return slurm.states().get(task) == "RUNNING"

    def settled():
        states = slurm.states()
        return len(states) >= TASKS and not set(states.values()) & {"PENDING", "RUNNING", "COMPLETING", "REQUEUED"} and states

    until(lambda: slurm.run("sinfo", "--noheader", "--format=%t").strip() == "idle", logs)
    number = slurm.run("sbatch", "--parsable", f"--array=0-{TASKS - 1}", "--cpus-per-task=1", SCRIPT, **environment).strip()
    until(lambda: running(1) and running(2) and running(3), logs)
    slurm.run("scancel", f"{number}_1")
    slurm.run("scontrol", "requeue", f"{number}_2")
    worker = until(lambda: [pid for pid in subprocess.run(["pgrep", "-f", f"{job.out} --shard 3/{TASKS} "], text=True,
                                                          capture_output=True, check=False).stdout.split()], logs)
    os.kill(int(worker[-1]), signal.SIGKILL)
    states = until(settled, lambda: str(slurm.states()) + logs())
    assert states.pop(1) == "CANCELLED" and set(states.values()) == {"COMPLETED"}, states
    assert job.ask("--check", code=1)["missing"] > 0, "the cancelled task's shard"
    slurm.run("sbatch", "--parsable", "--array=1", "--cpus-per-task=1", SCRIPT, SHARDS=str(TASKS), **environment)
    until(lambda: slurm.states().get(1) == "COMPLETED", lambda: str(slurm.states()) + logs())
    assert job.ask("--check", "--finish")["sha256"] == want
    assert job.merged() == calm.merged() and job.is_clean()
