#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decide.py FOLDER - what the logs and reports of one device say of the number formats: which of fp16 and bf16 `auto`
should take, and whether int8 and fp8 stay.

FOLDER has, at any depth, kernels.log of `run.sh check golden` (least cosines of every format, of random models and of the golden
texts) and the reports of `run.sh measure` in several formats (DATE-DEVICE-…json). fp16 is for `auto` where it is nearer than bf16
for every model and no text had to be run again in fp32; a format of 8 bits stays where it keeps its cosine and is
faster than the best of 16 bits for some set of texts. Only what is in the folder is judged; the rest is said to be missing.
"""
import collections
import json
import pathlib
import re
import sys

LINE = re.compile(r"^(?P<model>[\w.-]+), (?P<format>\w+): least cosine (?P<cosine>[\d.]+|nan)")
GAIN = 1.02  # less is within the spread of turns


def cosines_of(folder: pathlib.Path) -> dict[str, dict[str, float]]:
    """Format -> model -> least cosine."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for log in folder.rglob("kernels.log"):
        for match in filter(None, map(LINE.match, log.read_text(encoding="utf-8").splitlines())):
            worst = found[match["format"]].get(match["model"], 1.0)
            found[match["format"]][match["model"]] = min(worst, float(match["cosine"].replace("nan", "-1")))
    return found


def speeds_of(folder: pathlib.Path) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Format -> "model, set" -> texts a second by engine alone, and format -> texts that were run again in fp32."""
    speeds: dict[str, dict[str, float]] = collections.defaultdict(dict)
    retries: dict[str, int] = collections.Counter()
    for path in sorted(folder.rglob("*-*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        for model in report.get("models", []):
            precision = model["describe"].get("cuda.precision", report["precision"])
            retries[precision] += int(model["describe"].get("cuda.fp32_retries", 0))
            for length, answer in model["ids"].items():
                if answer.get("seconds"):
                    key = f"{model['name']}, {length} tokens"
                    speeds[precision][key] = max(speeds[precision].get(key, 0), answer["texts"] / answer["seconds"])
    return speeds, retries


def of_auto(cosines: dict, retries: dict) -> str:
    both = sorted(set(cosines["fp16"]) & set(cosines["bf16"]))
    if not both:
        return "auto: fp16 and bf16 were not compared (run.sh check)"
    farther = [model for model in both if not cosines["fp16"][model] > cosines["bf16"][model]]
    if farther:
        return f"auto: bf16; fp16 is no nearer on {', '.join(farther)}"
    if retries.get("fp16"):
        return f"auto: bf16; {retries['fp16']} texts overflowed fp16"
    worst = {name: min(cosines[name][model] for model in both) for name in ("fp16", "bf16")}
    return f"auto: fp16; nearer on all {len(both)} models (least {worst['fp16']:.7f}, bf16 {worst['bf16']:.7f})"


def of_narrow(name: str, least: float, cosines: dict, speeds: dict) -> str:
    off = [model for model, cosine in cosines[name].items() if not cosine >= least]
    if off:
        return f"{name}: goes; below {least} on {', '.join(sorted(off))}"
    gains = {key: speed / max(speeds[wide].get(key, 0) for wide in ("fp16", "bf16")) for key, speed in speeds[name].items()
             if any(speeds[wide].get(key) for wide in ("fp16", "bf16"))}
    if not cosines[name] or not gains:
        return f"{name}: not judged; {'no cosine' if not cosines[name] else 'no time beside 16 bits'} in the folder"
    best = max(gains, key=gains.get)
    if gains[best] < GAIN:
        return f"{name}: goes; at best {gains[best]:.2f} times 16 bits ({best})"
    return f"{name}: stays; {gains[best]:.2f} times 16 bits ({best}), {min(gains.values()):.2f} at least"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    cosines, (speeds, retries) = cosines_of(folder), speeds_of(folder)
    print(of_auto(cosines, retries))
    for name in ("int8", "fp8"):
        print(of_narrow(name, 0.995, cosines, speeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
