# SPDX-License-Identifier: Apache-2.0
"""slurm.py - a real Slurm for tests: slurmctld and slurmd on this machine, as whoever runs the tests, on ports of their own."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess

import commandline
import pytest

AUTH = "/usr/lib/x86_64-linux-gnu/slurm-wlm/auth_none.so"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm:
    """One controller and one node of 32 processors, whatever the machine has."""

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
NodeName={host} NodeAddr=127.0.0.1 CPUs=32 State=UNKNOWN
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

    def logs(self):
        return "".join(path.read_text(errors="replace")[-1500:] for path in (self.place / "log").iterdir())


def begin(place):
    """Slurm in a folder, or a skip that says what is missing."""
    for name in ("slurmctld", "slurmd", "sbatch"):
        if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            pytest.skip(f"{name} is not installed")
    if not os.path.exists(AUTH):
        pytest.skip("this Slurm has no auth/none")
    place.mkdir()
    return Slurm(place)
