# SPDX-License-Identifier: Apache-2.0
"""plots.py - the pictures of one benchmark result as SVG; none where matplotlib is not installed.

Horizontal bars with the spread of the rounds as whiskers: throughput in texts/s for each set, p50 of a single query
(p99 as a mark), and the tokenizer by script.
"""
import pathlib

OURS, THEIRS = "#1b7f5c", "#9aa5b1"


def bars(axes, values: dict[str, dict], scale: float = 1.0, **words) -> None:
    middle, low, high = ([value[key] * scale for value in values.values()] for key in ("med", "min", "max"))
    whiskers = [[m - l for m, l in zip(middle, low)], [h - m for m, h in zip(middle, high)]]
    axes.barh(list(values), middle, xerr=whiskers, color=[OURS if name.startswith("fletch") else THEIRS for name in values],
              ecolor="#333333", capsize=2)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(**words)


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

    def save(kind: str, places: dict, height: float, fill) -> None:
        """A picture of a place above the other for each entry."""
        figure, axes = pyplot.subplots(len(places), 1, figsize=(7, height * len(places)), squeeze=False)
        for axis, (name, found) in zip(axes[:, 0], places.items()):
            fill(axis, name, found)
        figure.tight_layout()
        path = base.with_name(f"{base.name}-{kind}.svg")
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
        made.append(path.name)

    def throughput(axis, name: str, speeds: dict) -> None:
        info = result["sets"][name]
        bars(axis, speeds, info["texts"] / info["tokens"], title=f"{name}, {info['tokens'] / info['texts']:.0f} tokens a text", xlabel="texts/s")

    def latency(axis, tokens: str, times: dict) -> None:
        bars(axis, {name: found["p50"] for name, found in times.items()}, title=f"one query of {tokens} tokens", xlabel="ms (bar: p50)")
        axis.plot([found["p99"] for found in times.values()], list(times), "k|", markersize=10, label="p99")
        axis.legend()

    def tokenizer(axis, _: str, sets: dict) -> None:
        there = {name: values for name, values in sets.items() if "ratio" in values}
        bars(axis, {"fletch: " + name: values["fletch"] for name, values in there.items()}, title="tokenizer, one thread", xlabel="MB/s")
        axis.barh(["wheel: " + name for name in there], [values["tokenizers"]["med"] for values in there.values()], color=THEIRS)
        axis.tick_params(axis="y", labelsize=7)

    if result.get("speed"):
        save("throughput", result["speed"], 2.6, throughput)
    if result.get("latency"):
        save("latency", result["latency"], 2.8, latency)
    if result.get("tokenizer"):
        save("tokenizer", {"tokenizer": result["tokenizer"]}, 3.2, tokenizer)
    return made
