# SPDX-License-Identifier: Apache-2.0
"""onnx_graph.py - the graph that fletch builds against onnxruntime's own optimised export.

    python bench/onnx_graph.py --model FOLDER [--tool build/tests/onnx_graph] [--threads 1] [--rounds 3] [--keep FOLDER]

Exports the folder's BERT with torch (mean pooling in the graph), optimises the file with
onnxruntime.transformers.optimizer and lets tests/onnx_graph run both in turns on the same ids. The figures are
processor time; the ratio is the file's time over the built graph's: above 1, the built graph is the faster.
--keep takes the exports from a folder, and puts them there the first time.
Needs torch, transformers, onnx and onnxruntime. ORT_LIBRARY names the library; without it the one of the
onnxruntime package is taken.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

SHAPES = ["1x4", "1x8", "1x16", "1x32", "8x16", "1x128", "16x32", "8x64", "1x256", "1x512"]
GOAL = 0.98


def export(folder: str, target: str) -> tuple:
    import torch
    from transformers import AutoModel
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            rows = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).float()
            return (rows * mask).sum(1) / mask.sum(1).clamp(min=1e-9)

    ids = torch.randint(5, 1000, (2, 16))
    names = ["input_ids", "attention_mask"]
    with torch.no_grad():
        torch.onnx.export(Pooled(), (ids, torch.ones_like(ids)), target, input_names=names,
                          output_names=["sentence_embedding"], opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names})
    return model.config.num_attention_heads, model.config.hidden_size


def optimise(source: str, target: str, heads: int, hidden: int) -> dict:
    from onnxruntime.transformers import optimizer
    optimised = optimizer.optimize_model(source, model_type="bert", num_heads=heads, hidden_size=hidden, opt_level=1)
    optimised.save_model_to_file(target)
    return {name: count for name, count in optimised.get_fused_operator_statistics().items() if count}


def library() -> str:
    import onnxruntime
    if os.environ.get("ORT_LIBRARY"):
        return os.environ["ORT_LIBRARY"]
    return str(next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.*")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tool", default="build/tests/onnx_graph")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", help="folder for the exports")
    parser.add_argument("shapes", nargs="*", default=SHAPES, help="BATCHxLENGTH")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        exports = pathlib.Path(options.keep or work)
        exports.mkdir(parents=True, exist_ok=True)
        plain, best = str(exports / "plain.onnx"), str(exports / "optimised.onnx")
        if not pathlib.Path(best).exists():
            heads, hidden = export(options.model, plain)
            print("fused by the optimizer:", optimise(plain, best, heads, hidden))
        ratios = {}
        for name, file in (("optimised", best), ("plain", plain)):
            for _ in range(options.rounds):
                done = subprocess.run([options.tool, "time", options.model, file, str(options.threads),
                                       *options.shapes], capture_output=True, text=True, check=True,
                                      env={**os.environ, "ORT_LIBRARY": library()})
                for line in done.stdout.splitlines():
                    row = json.loads(line)
                    ratios.setdefault((name, f"{row['batch']}x{row['length']}"), []).append(
                        (row["file"][0] / row["built"][0], row["built"][0]))
    print("export     shape    built ms  file/built  (median of rounds, lowest to highest)")
    for (name, shape), found in ratios.items():
        ratio = [each[0] for each in found]
        print(f"{name:10} {shape:8} {statistics.median(each[1] for each in found):8.2f}  "
              f"{statistics.median(ratio):10.3f}  {min(ratio):.3f} to {max(ratio):.3f}")
    of_goal = [statistics.median(r for r, _ in found) for (name, _), found in ratios.items() if name == "optimised"]
    print(f"optimised: geometric mean {statistics.geometric_mean(of_goal):.3f}, least {min(of_goal):.3f}; "
          f"goal at least {GOAL}")


if __name__ == "__main__":
    main()
