# SPDX-License-Identifier: Apache-2.0
"""report.py RESULT.json - the tables of one benchmark result, as Markdown on stdout."""
import json
import re
import sys


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def three(values: dict, form: str) -> str:
    return f"{values['min']:{form}} / **{values['med']:{form}}** / {values['max']:{form}}"


def speed_table(result: dict, name: str) -> list[str]:
    info, peak = result["sets"][name], result["peak_gflops"]
    lines = [f"### {name}: {info['texts']} texts, {info['tokens']} tokens "
             f"({info['tokens'] / info['texts']:.1f} a text)", "",
             "| engine | real tokens/s min / **med** / max | texts/s | GFLOP/s | of the FMA peak | fletch is faster by |",
             "|---|---|---|---|---|---|"]
    for engine, speed in result["speed"][name].items():
        gflops = info["gflop"] * speed["med"] / info["tokens"]
        ratio = result["ratios"][name].get(engine)
        lines.append(f"| {engine} | {three(speed, ',.0f')} | {speed['med'] * info['texts'] / info['tokens']:.0f} | "
                     f"{gflops:.0f} | {f'{100 * gflops / peak:.0f} %' if peak else '-'} | "
                     f"{three(ratio, '.2f') if ratio else ''} |")
    return [*lines, ""]


def render(result: dict) -> str:
    machine = result["machine"]
    peak = result["peak_gflops"]
    lines = [f"# fletch against its peers, {result['date']}", "",
             f"{machine['cpu']}, {machine['threads']} threads on {machine['cores']} cores, {machine['memory_gb']} GB, "
             f"{machine['system']}, Python {machine['python']}; fletch at commit {machine['commit']}. "
             + (f"FMA peak measured: {peak:.1f} GFLOP/s." if peak else "FMA peak not measured."), "",
             "Model all-MiniLM-L6-v2, fp32, mean pooling, unit length. From text to a float32 matrix, tokenising "
             "included; each engine in its own process, rounds interleaved, order reversed every other round. "
             "GFLOP/s: 2 per multiply-add of linear layers and attention on real tokens. Ratios within a round.", "",
             "Versions: " + "; ".join(result["versions"].values()) + ".",
             "Parity (smallest cosine to sentence-transformers, 64 texts): "
             + ", ".join(f"{name} {value:.7f}" for name, value in result["parity"].items()) + ".", "",
             "## Throughput", ""]
    for name in result["speed"]:
        lines += speed_table(result, name)
    base = result["latency"]["fletch"]["p50"]["med"]
    lines += ["## One query of 16 tokens", "", "| engine | p50 ms min / **med** / max of blocks | p99 ms | fletch is faster by |",
              "|---|---|---|---|"]
    for engine, found in result["latency"].items():
        ratio = "" if engine == "fletch" else f"{found['p50']['med'] / base:.2f}"
        lines.append(f"| {engine} | {three(found['p50'], '.2f')} | {found['p99']:.2f} | {ratio} |")
    lines += ["", "## Process start to first vector (files in the page cache)", "",
              "| engine | seconds min / **med** / max |", "|---|---|"]
    lines += [f"| {engine} | {three(found, '.3f')} |" for engine, found in result["cold"].items()]
    lines += ["", "## Peak resident memory of the process, 2,048 short texts", "", "| engine | MB |", "|---|---|"]
    lines += [f"| {engine} | {megabytes:.0f} |" for engine, megabytes in result["memory"].items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(render(json.load(file)), end="")
