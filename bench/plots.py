# SPDX-License-Identifier: Apache-2.0
"""plots.py - the pictures of one benchmark result as SVG; none where matplotlib is not installed.

Horizontal bars with the spread of the rounds as whiskers: throughput in texts/s for each set, p50 of a single query
(p99 as a mark), and the tokenizer by script.
"""
import pathlib

OURS, THEIRS = "#1b7f5c", "#9aa5b1"


def colour(engine: str) -> str:
    return OURS if engine.startswith("fletch") else THEIRS


def bars(axes, names: list, values: list[dict], scale: float = 1.0) -> None:
    middle = [value["med"] * scale for value in values]
    low = [(value["med"] - value["min"]) * scale for value in values]
    high = [(value["max"] - value["med"]) * scale for value in values]
    axes.barh(names, middle, xerr=[low, high], color=[colour(name) for name in names], ecolor="#333333", capsize=2)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure, pyplot, path: pathlib.Path) -> str:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path.name


def draw(result: dict, base: pathlib.Path) -> list[str]:
    """Names of the files written beside the result."""
    try:
        import matplotlib
        matplotlib.use("svg")
        matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a tenth of the size
        matplotlib.rcParams["svg.hashsalt"] = "fletch"  # the same picture, the same bytes
        from matplotlib import pyplot
    except ImportError:
        return []
    made = []
    if result.get("speed"):
        sets = result["speed"]
        figure, axes = pyplot.subplots(len(sets), 1, figsize=(7, 2.6 * len(sets)), squeeze=False)
        for place, (name, speeds) in zip(axes[:, 0], sets.items()):
            info = result["sets"][name]
            bars(place, list(speeds), list(speeds.values()), info["texts"] / info["tokens"])
            place.set(title=f"{name}, {info['tokens'] / info['texts']:.0f} tokens a text", xlabel="texts/s")
        made.append(save(figure, pyplot, base.with_name(base.name + "-throughput.svg")))
    if result.get("latency"):
        figure, axes = pyplot.subplots(len(result["latency"]), 1, figsize=(7, 2.8 * len(result["latency"])), squeeze=False)
        for place, (tokens, times) in zip(axes[:, 0], result["latency"].items()):
            bars(place, list(times), [found["p50"] for found in times.values()])
            place.plot([found["p99"] for found in times.values()], list(times), "k|", markersize=10, label="p99")
            place.set(title=f"one query of {tokens} tokens", xlabel="ms (bar: p50)")
            place.legend()
        made.append(save(figure, pyplot, base.with_name(base.name + "-latency.svg")))
    if result.get("tokenizer"):
        found = {name: values for name, values in result["tokenizer"].items() if "ratio" in values}
        figure, axes = pyplot.subplots(figsize=(7, 3.2))
        bars(axes, ["fletch: " + name for name in found], [values["fletch"] for values in found.values()])
        axes.barh(["wheel: " + name for name in found], [values["tokenizers"]["med"] for values in found.values()], color=THEIRS)
        axes.tick_params(axis="y", labelsize=7)
        axes.set(title="tokenizer, one thread", xlabel="MB/s")
        made.append(save(figure, pyplot, base.with_name(base.name + "-tokenizer.svg")))
    return made
