# SPDX-License-Identifier: Apache-2.0
"""A model's name becomes a folder: a folder as it is, then the Hugging Face cache, then a download.

Where huggingface_hub is installed it downloads (logins, mirrors and progress bars as Python users have them);
else the library does, if libcurl is there. Both write the same cache."""
from __future__ import annotations

import functools
import os
import pathlib

from . import _fletch
from .errors import ConfigError, Denied, NetworkError, NotFound, Unsupported

# What src/model/hub_snapshot.c takes (tests/tidy compares them); "*.json" is any folder's here.
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
    """The folder of a model; downloads it where that is allowed and needed."""
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
        raise NotFound(f"{name} is not in the cache, and there is nothing to download it with: "
                       f"pip install huggingface_hub, or install libcurl ({error})") from None


def _missing_weights(folder: str) -> list[str]:
    """pytorch_model.bin of the root and of modules, where there is nothing better."""
    root = pathlib.Path(folder)
    places = ["", *(f"{path.parent.name}/" for path in root.glob("[0-9]*_*/config.json")
                     if not path.parent.name.endswith(("_Pooling", "_Normalize")))]
    return [f"{place}{name}" for place in places if not list((root / place).glob("model*.safetensors"))
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
        pickles = _missing_weights(fetch(allow_patterns=_FILES))
        if pickles:
            fetch(allow_patterns=pickles)
    except errors.GatedRepoError as error:
        raise Denied(f"{repository} is not for this token: {error}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise NotFound(f"{name} is not on the hub, or not for this token: {error}") from error
    except Exception as error:
        hubs = isinstance(error, (errors.LocalEntryNotFoundError, errors.HfHubHTTPError)) or \
            type(error).__module__.partition(".")[0] in _HTTP
        if isinstance(error, (OSError, ValueError)) and not hubs:
            raise  # a full disk, a name that is none
        raise NetworkError(f"{name} is not in the cache, and the hub did not give it: {error}") from error
    return True
