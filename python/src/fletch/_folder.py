# SPDX-License-Identifier: Apache-2.0
"""The folder of a job: where parts appear whole or not at all, on a local disk or in an object store.

A local file is written under a temporary name, synced and renamed; an object becomes visible when it is closed. The
names of temporaries are those of the C program, which sweeps them too (docs/job.md)."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import secrets
import stat
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pafs  # type: ignore[import-untyped]

_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\..*\.fletch-([0-9a-f]{8})[0-9a-f]{8}\.tmp")
_TRIES = 16


class Writer:
    """A file on its way: what was written, how much, and its digest."""

    def __init__(self, out: Any) -> None:
        self._out, self._digest, self.bytes, self.closed = out, hashlib.sha256(), 0, False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        self._out.write(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._out.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """For pyarrow; the folder closes the file."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class Folder(Protocol):
    """What a job needs of the place it writes to."""

    def read(self, name: str) -> bytes | None: ...
    def size(self, name: str) -> int | None: ...
    def names(self) -> list[str]: ...
    def put(self, name: str, content: bytes, first: bool = False) -> None: ...
    def create(self, name: str) -> contextlib.AbstractContextManager[Writer]: ...
    def remove(self, name: str) -> None: ...
    def sweep(self, everywhere: bool) -> None: ...


def _hold(file: Any) -> bool:
    """Say that someone writes this temporary; some disks have no locks. False: somebody who sweeps was faster."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return os.fstat(file.fileno()).st_nlink > 0


def _abandoned(fd: int, unknown: bool) -> bool:
    """Whether nobody writes this temporary; `unknown` on a disk without locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unknown
    return True


class LocalFolder:
    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(path, exist_ok=True)

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def read(self, name: str) -> bytes | None:
        try:
            # a pipe in the place of a file would be waited for, a device may have no end
            fd = os.open(self._at(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", self._at(name))
            return file.read()

    def size(self, name: str) -> int | None:
        try:
            return os.stat(self._at(name)).st_size
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return os.listdir(self.path)

    @contextlib.contextmanager
    def _temporary(self, name: str) -> Iterator[tuple[Any, str]]:
        for _ in range(_TRIES):
            path = self._at(f".{name}.fletch-{_HOST}{secrets.token_hex(4)}.tmp")
            file = open(path, "xb")
            if _hold(file):
                break
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            raise OSError(errno.EEXIST, "cannot write beside", self._at(name))
        try:
            yield file, path
        finally:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def put(self, name: str, content: bytes, first: bool = False) -> None:
        """`first`: unless the name is taken. Else it replaces what is there, and is not synced: see manifests."""
        with self._temporary(name) as (file, path):
            file.write(content)
            file.flush()
            if not first:
                os.replace(path, self._at(name))
                return
            os.fsync(file.fileno())
            try:
                os.link(path, self._at(name))
            except FileExistsError:
                pass
            except OSError:  # a file system without links: what is there then is read back and compared
                if self.size(name) is None:
                    os.replace(path, self._at(name))

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[Writer]:
        with self._temporary(name) as (file, path):
            yield Writer(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(path, self._at(name))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def sweep(self, everywhere: bool) -> None:
        for name in self.names():
            found = _TEMPORARY.fullmatch(name)
            if not found or not (everywhere or found[1] == _HOST):
                continue
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                # For writing: over NFS a file that is open to be read alone cannot be locked as a writer locks it.
                fd = os.open(self._at(name), os.O_WRONLY | os.O_NOFOLLOW)
                try:
                    if _abandoned(fd, everywhere):
                        os.unlink(self._at(name))
                finally:
                    os.close(fd)


class StoreFolder:
    """A folder of any pyarrow file system; one PUT under the final name is atomic there."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self.filesystem, self.path = filesystem, path.rstrip("/")
        filesystem.create_dir(self.path, recursive=True)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def read(self, name: str) -> bytes | None:
        if self.size(name) is None:
            return None
        with self.filesystem.open_input_file(self._at(name)) as file:
            content: bytes = file.read()
            return content

    def size(self, name: str) -> int | None:
        info = self.filesystem.get_file_info(self._at(name))
        return int(info.size) if info.type == pafs.FileType.File else None

    def names(self) -> list[str]:
        return [info.base_name for info in self.filesystem.get_file_info(pafs.FileSelector(self.path))]

    def put(self, name: str, content: bytes, first: bool = False) -> None:
        if first and self.size(name) is not None:
            return
        with self.filesystem.open_output_stream(self._at(name)) as file:
            file.write(content)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[Writer]:
        # Closing a stream publishes what it holds: a part that fails must never come to that, so it is whole first.
        buffer = pa.BufferOutputStream()
        writer = Writer(buffer)
        yield writer
        with self.filesystem.open_output_stream(self._at(name)) as file:
            file.write(buffer.getvalue())

    def remove(self, name: str) -> None:
        if self.size(name) is not None:
            self.filesystem.delete_file(self._at(name))

    def sweep(self, everywhere: bool) -> None:
        """No temporaries there."""


def open_folder(place: str, filesystem: Any = None) -> Folder:
    """A path, or a URI such as s3://bucket/folder, or a path of a pyarrow file system."""
    if filesystem is None and "://" in place:
        filesystem, place = pafs.FileSystem.from_uri(place)
    if filesystem is None or isinstance(filesystem, pafs.LocalFileSystem):
        return LocalFolder(place)
    return StoreFolder(filesystem, place)
