# SPDX-License-Identifier: Apache-2.0
"""A model's name becomes a folder: a folder as it is, then the Hugging Face cache, then a download.

Where huggingface_hub is installed it downloads (logins, mirrors and progress bars as Python users have them);
else the library does, if libcurl is there. Both write the same cache."""
from __future__ import annotations

import functools
import json
import os
import pathlib

from . import _fletch
from .errors import ConfigError, Denied, NetworkError, NotFound, Unsupported

# What src/hub/hub_snapshot.c takes (tests/tidy compares them); "*.json" is any folder's here.
_FILES = ["*.json", "vocab.txt", "adapter_model.safetensors", "chat_template.jinja", "artifact.metadata", "sparse_linear.pt",
          "colbert_linear.pt", "sparse_linear.safetensors", "colbert_linear.safetensors", "model*.safetensors", "[0-9]*_*/model.safetensors",
          "query_[0-9]*_*/model.safetensors", "document_[0-9]*_*/model.safetensors"]
# Whose errors are the network's, though some are OSErrors and ValueErrors: huggingface_hub 0.x lets them through.
_HTTP = {"requests", "urllib3", "httpx", "httpx2", "httpcore", "httpcore2"}
_LEVELS = ("low", "medium", "high")

Options = tuple[tuple[str, str], ...]


def _is_offline(options: Options) -> bool:
    return ("model.offline", "true") in options or \
        os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def resolve(name: str, options: Options, token: str | bool | None = None) -> str:
    """The folder of a model, and what an adapter was trained on beside it; downloads them where that is allowed and needed."""
    folder = _resolve(name, options, token)
    try:
        adapter = json.loads((pathlib.Path(folder) / "adapter_config.json").read_bytes())
        base, revision = adapter["base_model_name_or_path"], adapter.get("revision")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return folder  # none; or damaged, which opening says
    if isinstance(base, str) and base and not os.path.isdir(base):
        others = tuple(option for option in options if option[0] != "model.revision")
        _resolve(f"{base}@{revision}" if revision and "@" not in base else base, others, token)
    return folder


def _resolve(name: str, options: Options, token: str | bool | None) -> str:
    if os.path.isdir(name):
        return name
    try:
        return _fletch.hub_path(name, options, False, None)
    except NotFound:
        if _is_offline(options) or name.startswith((".", "/", "~")):
            raise
    chosen = dict(options)
    if name not in _LEVELS and _download(name, chosen, token):
        return _fletch.hub_path(name, options, False, None)
    if isinstance(token, str):
        raise ConfigError("token= needs huggingface_hub (pip install fletch[hub]); or set the variable HF_TOKEN")
    try:
        return _fletch.hub_path(name, options, True, None)
    except Unsupported as error:  # no libcurl
        raise NotFound(f"{name} is not in the cache, and no downloader is available: "
                       f"pip install huggingface_hub, or install libcurl ({error})") from None


def _stand_ins(folder: str) -> list[str]:
    """pytorch_model.bin of the root and of modules, and what tokenizer.json is made of, where there is nothing better."""
    root = pathlib.Path(folder)
    others = [] if (root / "tokenizer.json").exists() else ["merges.txt", "sentencepiece.bpe.model", "spiece.model", "spm.model"]
    places = ["", *(f"{path.parent.name}/" for path in root.glob("[0-9]*_*/config.json")
                     if not path.parent.name.endswith(("_Pooling", "_Normalize")))]
    if (root / "adapter_model.safetensors").exists():
        del places[0]
    return others + [f"{place}{name}" for place in places if not list((root / place).glob("model*.safetensors"))
                     for name in ("pytorch_model*.bin", "pytorch_model.bin.index.json")]


def _download(name: str, chosen: dict[str, str], token: str | bool | None) -> bool:
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        return False
    repository, _, revision = name.partition("@")
    if "/" not in repository:
        repository = "sentence-transformers/" + repository
    try:
        fetch = functools.partial(huggingface_hub.snapshot_download, repository, revision=revision or chosen.get("model.revision"),
                                  token=token, cache_dir=chosen.get("model.cache_dir"))
        others = _stand_ins(fetch(allow_patterns=_FILES))
        if others:
            fetch(allow_patterns=others)
    except errors.GatedRepoError as error:
        raise Denied(f"{repository} is not accessible with this token: {error}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise NotFound(f"{name} is not on the hub, or not accessible with this token: {error}") from error
    except Exception as error:
        hubs = isinstance(error, (errors.LocalEntryNotFoundError, errors.HfHubHTTPError)) or \
            type(error).__module__.partition(".")[0] in _HTTP
        if isinstance(error, (OSError, ValueError)) and not hubs:
            raise  # a full disk, a name that is none
        raise NetworkError(f"{name} is not in the cache, and downloading it failed: {error}") from error
    return True
