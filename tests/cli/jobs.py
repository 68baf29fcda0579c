# SPDX-License-Identifier: Apache-2.0
"""jobs.py - a job of files under tests: its input, its run, its kills. Also what tools/soak.sh job runs:

    FLETCH_BIN=... python tests/cli/jobs.py MODEL KILLS [SIGTERMS [FULL DISKS]]
"""
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import commandline

TOY = commandline.ROOT / "tests" / "golden" / "folders" / "plain-bert"
WORDS = "the cat sat on a mat while dogs ran over green hills and some people wrote long notes about it".split()
PART = re.compile(r"part-\d{5}-\d{5}\.(json|jsonl|npy)")


def lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 24))) for _ in range(count)]


def make_input(folder: pathlib.Path, count: int = 3000) -> pathlib.Path:
    """Files of lines and of JSON lines, two of one name, one whose records have a bad one among them."""
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("\n".join(lines(count // 2, 1)))
    (folder / "sub" / "a.txt").write_text("".join(line + "\n" for line in lines(count // 4, 2)))
    objects = [json.dumps({"text": text, "id": i}) for i, text in enumerate(lines(count // 4, 3))]
    objects[7] = "{bad"
    (folder / "b.jsonl").write_text("\n".join(objects) + "\n")
    return folder


class Job:
    """One output folder and the command that makes it."""

    def __init__(self, place: pathlib.Path, source, out: str = "out", model=TOY, split="4KiB"):
        self.place, self.out = place, place / out
        self.command = [commandline.BIN, "run", "--quiet", "-m", str(model), "-i", str(source), "-o", str(self.out),
                        "--split-bytes", split]
        self.environment = commandline.environment(place)

    def start(self, *flags, **options):
        return subprocess.Popen([*self.command, *map(str, flags)], cwd=self.place, env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def run(self, *flags, code=(0, 4), **options) -> dict:
        """The summary of a run that ends with one of these codes; without one, its messages."""
        process = self.start(*flags, **options)
        out, err = process.communicate(timeout=commandline.WAIT)
        assert process.returncode in (code if isinstance(code, tuple) else (code,)), (process.returncode, err.decode())
        return json.loads(out) if out else {"stderr": err.decode()}

    def ask(self, *flags, code=(0, 4)) -> dict:
        """--check and its like: the totals, and what was said."""
        done = subprocess.run([commandline.BIN, "run", "-o", self.out, *map(str, flags)], cwd=self.place,
                              env=self.environment, capture_output=True, timeout=commandline.WAIT)
        assert done.returncode in (code if isinstance(code, tuple) else (code,)), (done.returncode, done.stderr.decode())
        return {**(json.loads(done.stdout) if done.stdout else {}), "stderr": done.stderr.decode()}

    def names(self) -> list[str]:
        return sorted(os.listdir(self.out)) if self.out.exists() else []

    def done(self) -> dict[str, int]:
        """The manifests that are there, each with its inode: a part that is made again has another."""
        return {name: (self.out / name).stat().st_ino for name in self.names()
                if PART.fullmatch(name) and name.endswith(".json")}

    def content(self) -> dict[str, bytes]:
        """Everything that must be the same however the job came about: manifests say when."""
        return {name: (self.out / name).read_bytes() for name in self.names() if not name.endswith(".json")}

    def merged(self) -> tuple[bytes, bytes]:
        target = self.place / f"{self.out.name}-merged.npy"
        self.ask("--merge", target)
        return target.read_bytes(), target.with_suffix(".jsonl").read_bytes()

    def is_clean(self) -> bool:
        return all(PART.fullmatch(name) or name in ("job.json", "_SUCCESS") for name in self.names())

    def interrupt(self, number: signal.Signals, draw: random.Random) -> int:
        """Begin, wait for up to two more parts, end it somewhere after them. Its exit code."""
        goal = len(self.done()) + draw.randint(0, 2)
        process = self.start()
        while process.poll() is None and len(self.done()) < goal:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.03)
        process.send_signal(number)
        process.communicate(timeout=commandline.WAIT)
        return process.returncode


def storm(job: Job, kills: int, number: signal.Signals, seed: int) -> int:
    """Kill the job again and again; a part that was done stays as it is. How often a run was really killed."""
    draw, before, hit = random.Random(seed), {}, 0
    for _ in range(kills):
        hit += job.interrupt(number, draw) not in (0, 4)
        now = job.done()
        assert before.items() <= now.items(), "a part that was done was made again"
        before = now
    return hit


def limit_files(size: int):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def main(model: str, kills: int, terms: int = 0, full: int = 0) -> None:
    place = pathlib.Path(tempfile.mkdtemp(prefix="fletch-job-"))
    draw = random.Random(0)
    source, model = make_input(place / "in", 20_000), os.path.abspath(model)
    calm = Job(place, source, "calm", model, "32KiB")
    calm.run()
    want, total, round_number = calm.merged(), 0, 0
    while total < kills + terms:
        round_number += 1
        job = Job(place, source, f"storm{round_number}", model, "32KiB")
        number = signal.SIGKILL if total < kills else signal.SIGTERM
        total += storm(job, min(40, kills + terms - total), number, round_number)
        job.run()
        assert job.merged() == want and job.is_clean(), "the merged results differ"
        shutil.rmtree(job.out)
        print(f"{total} of {kills + terms} signals, {round_number} jobs: the same bytes", flush=True)
    for i in range(full):
        job = Job(place, source, f"full{i}", model, "32KiB")
        job.run(code=1, preexec_fn=limit_files(draw.randint(100, 60_000)))
        assert job.is_clean(), job.names()
        job.run()
        assert job.merged() == want
        shutil.rmtree(job.out)
    print(f"{full} full disks: the same bytes")
    shutil.rmtree(place)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
