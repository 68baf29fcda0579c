# SPDX-License-Identifier: Apache-2.0
"""make_spans.py - spans.json: what test_spans.py expects of late chunking, computed in torch.

    python tests/golden/make_spans.py        (torch, transformers, tokenizers; their versions are noted)

The published way (chunked pooling, and windows with overlap for long documents): the document passes the
model once, or window by window; rows of the overlap come from the earlier window; a span is the mean of its tokens.
"""
import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ["albert", "camembert", "data2vec", "distilbert", "electra", "ernie", "modernbert", "roberta", "xlm-roberta", "mpnet", "qwen3-both-ways", "rembert"]
TEXT = ("Berlin is the capital of Germany. It has 3.85 million inhabitants, and the café on the corner sells naïve tea. "
        "The city's rivers are the Spree and the Havel.")
WINDOWS = [(0, 0), (24, 6)]  # tokens, overlap; 0: the whole document


def spans(text: str) -> list:
    sentences = [0, *(i + 1 for i, c in enumerate(text) if c == "." and text[i + 1:i + 2] in ("", " "))]
    cuts = list(zip(sentences, sentences[1:])) + [(0, len(text)), (10, 60)]
    return [(len(text[:a].encode()), len(text[:b].encode())) for a, b in cuts]


def rows_of(model, ids: list, window: int, overlap: int) -> torch.Tensor:
    window, rows, begin, end = window or len(ids), [], 0, 0
    while end < len(ids):
        end = min(begin + window, len(ids))
        hidden = model(input_ids=torch.tensor([ids[begin:end]])).last_hidden_state[0]
        rows.append(hidden[overlap if begin else 0:])
        begin += window - overlap
    return torch.cat(rows)


def pooled(rows: torch.Tensor, encoding, text: str) -> list:
    starts = [len(text[:a].encode()) for a, _ in encoding.offsets]
    own = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    found, size = [], len(text.encode())
    for begin, end in spans(text):
        inside = [i for i in own if begin <= starts[i] < end]
        first = 0 if begin == 0 else inside[0]
        last = len(rows) if end == size else inside[-1] + 1
        found.append(torch.nn.functional.normalize(rows[first:last].mean(0), dim=0).tolist())
    return found


def main():
    torch.manual_seed(0)
    result = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "text": TEXT,
              "spans": spans(TEXT), "cases": []}
    for name in FOLDERS:
        folder = HERE / f"folders/family-{name}"
        pooling = folder / "1_Pooling/config.json"
        if not pooling.exists() or not json.loads(pooling.read_text()).get("pooling_mode_mean_tokens", "mean" in pooling.read_text()):
            print(name, "has no mean pooling")
            continue
        try:
            model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        except Exception as error:
            print(name, str(error)[:100])
            continue
        encoding = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(TEXT)
        with torch.no_grad():
            for window, overlap in WINDOWS:
                rows = rows_of(model, encoding.ids, window, overlap)
                vectors = [[round(x, 8) for x in row] for row in pooled(rows, encoding, TEXT)]
                result["cases"].append({"folder": folder.name, "window": window, "overlap": overlap, "vectors": vectors})
    print(len(result["cases"]), "cases")
    (HERE / "spans.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
