# SPDX-License-Identifier: Apache-2.0
"""export_onnx.py MODEL OUT.onnx - the plain graph for onnxruntime and OpenVINO: ids, mask, types in,
last_hidden_state out, both axes dynamic; pooling stays outside."""
import sys

import torch
from transformers import AutoModel


def main(folder: str, target: str) -> None:
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids=input_ids, attention_mask=attention_mask,
                              token_type_ids=token_type_ids).last_hidden_state

    ids = torch.ones(2, 9, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    with torch.no_grad():
        torch.onnx.export(Plain(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), target,
                          input_names=names, output_names=["last_hidden_state"], dynamic_axes=axes,
                          opset_version=17, dynamo=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
