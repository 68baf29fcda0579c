# SPDX-License-Identifier: Apache-2.0
"""What fletch raises. Every class is also the built-in one that Python programs catch for the same thing."""
from __future__ import annotations

import re

from . import _fletch

# What the library says to programs in C and on the command line, said to Python (python/tests reads them all).
_WORDS = [(re.compile(said), here) for said, here in (
    (r"fletch_(\w+) \(fletch [^()]*\)", r"Model.\1"),
    (r"pass the text with --prompt", "pass the text with prompt="),
    (r"ask for --precision bf16 or int8", "ask for precision='bf16' or 'int8'"),
    (r"set --pooling mean, cls or lasttoken", "set config={'model.pooling': …}: mean, cls or lasttoken"),
    (r"`fletch (?:config|help options)` lists (?:all keys|the known ones)", "docs/options.md lists all keys"),
    (r"[Rr]un `fletch model pull ([^`]+)` where a network is allowed", r"Call fletch.Model('\1') where a network is allowed"),
    (r"[Rr]un `fletch model pull ([^`]+)` to be sure", r"Delete it there and call fletch.Model('\1') to be sure"),
    (r"[Rr]un `fletch model (?:verify|rm)` (?:or pull the model again|and `fletch model pull` to download them again)",
     "Delete the model's folder and open the model by its name: it is downloaded again"),
    (r"; `fletch model ls` lists what (?:is|it has)", ""),
    (r",? ?\(make (?:cuda|onnxruntime)\)", ""), (r"; build one with: make cuda", ""),
    (r"build it with: make cuda, or name it with cuda\.module", "name it with config={'cuda.module': …}"),
    (r"`make onnxruntime` or ", ""), (r" \(--gpus all\)", ""))]


def _in_python(message: str) -> str:
    for said, here in _WORDS:
        message = said.sub(here, message)
    return message


class Error(Exception):
    """Something fletch could not do. The message says what, why, and how to mend it."""

    code: str = "EINTERNAL"  #: the library's name of it, "ENOTFOUND"
    where: int | None = None  #: the index of the text to blame, or None

    def __init__(self, *details: object) -> None:
        super().__init__(*(_in_python(one) if isinstance(one, str) else one for one in details))


class InvalidArgument(Error, ValueError):
    """An argument is out of its range."""


class ConfigError(Error, ValueError):
    """An option is unknown, or its value is."""


class OutOfMemory(Error, MemoryError):
    """Memory, or memory.limit, does not hold it."""


class NotFound(Error, FileNotFoundError):
    """No such model, file or prompt."""


class InputOutputError(Error, OSError):
    """Reading or writing a file failed."""


class ModelError(Error, ValueError):
    """The model's files are damaged or do not fit together."""


class Unsupported(Error, NotImplementedError):
    """A model or a call that fletch does not do."""


class TextError(Error, UnicodeError):
    """A text is not valid Unicode; `where` is its index."""


class TooLong(Error, ValueError):
    """A text is longer than the model takes, and truncate is "error"; `where` is its index."""


class NetworkError(Error, ConnectionError):
    """The hub did not answer."""


class Denied(Error, PermissionError):
    """The hub or the system refused access."""


class ChecksumError(Error, OSError):
    """A downloaded file is not what the hub promised."""


class ProviderError(Error, RuntimeError):
    """No execution provider that was asked for works here."""


class Cancelled(Error, RuntimeError):
    """The model was closed, or the call given up."""


class DeadlineExceeded(Error, TimeoutError):
    """The deadline passed first."""


class Busy(Error, RuntimeError):
    """Too much waits already (server.max_queue_tokens): try later."""


class ForkError(Error, RuntimeError):
    """A model on a device cannot follow into a forked process: use the start method "spawn"."""

    code = "EUNSUPPORTED"  # the library has none for it


class TruncationWarning(UserWarning):
    """Texts were cut to the model's length: what lies beyond does not count in their vectors."""


def move(error: Exception, first: int) -> Exception:
    """What was said of a part of the texts, said of all: the one to blame stands `first` texts further on."""
    if isinstance(error, Error) and error.where is not None:
        error.where += first
    error.args = (_fletch.move_message(str(error), first),)
    return error


_kinds = {
    "ENOSPC": InputOutputError, "EINVAL": InvalidArgument, "ENOMEM": OutOfMemory, "EIO": InputOutputError,
    "ENOTFOUND": NotFound, "EMODEL": ModelError, "EUNSUPPORTED": Unsupported, "ECONFIG": ConfigError, "EUTF8": TextError,
    "ETOOLONG": TooLong, "ENETWORK": NetworkError, "EDENIED": Denied, "ECHECKSUM": ChecksumError,
    "EPROVIDER": ProviderError, "ECANCELLED": Cancelled, "EDEADLINE": DeadlineExceeded, "EBUSY": Busy, "EINTERNAL": Error}
for _name, _kind in _kinds.items():
    _kind.code = _name  # of those that Python raises; the library's say their own
_fletch.set_errors({_fletch.codes[name]: kind for name, kind in _kinds.items()})
