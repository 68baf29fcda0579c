# SPDX-License-Identifier: Apache-2.0
"""packs.py unpack|pack|check - the golden folders of tests/golden, which git holds as archives.

Some 2,000 small files were most of the repository. packs/*.tar hold them: `folders` by the first word of a folder's name, of
family-NAME by NAME, every other folder of tests/golden whole. unpack lays them out beside this file, where git does not
look; CMake does so whenever a pack has changed. What makes golden folders (make_*.py) writes there, then: packs.py pack.
check says what differs, and is a test. To look into a pack: tar tvf.

The archives have no times, owners or chance in them: equal folders are equal bytes. unpack writes each file at one stroke and
one process at a time. It takes away what it wrote before, and touches nothing that was written since: that is told instead.
"""
import contextlib
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
PACKS = HERE / "packs"
STATE = HERE / ".unpacked"  # what unpack wrote: {"packs": {name: digest}, "files": {path: digest}}


def themes() -> list:
    return [path for path in HERE.iterdir() if path.is_dir() and path.name not in (PACKS.name, "__pycache__")]


def pack_of(path: str) -> str:
    theme, *rest = path.split("/")
    if theme != "folders" or len(rest) < 2:
        return theme
    words = rest[0].split("-")
    return "-".join([theme, *words[:2 if words[0] == "family" else 1]])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def state_of(path: pathlib.Path):
    """The digest of a file, the target of a link; None: there is nothing."""
    if path.is_symlink():
        return "-> " + os.readlink(path)
    return digest(path.read_bytes()) if path.is_file() else None


def laid_out() -> list:
    """The paths of all files and links of the themes, in order."""
    return sorted(path.relative_to(HERE).as_posix() for theme in themes() for path in theme.rglob("*")
                  if path.is_symlink() or path.is_file())


def archive(paths) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in paths:
            member = tarfile.TarInfo(path)
            if (HERE / path).is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(HERE / path)
                tar.addfile(member)
            else:
                data = (HERE / path).read_bytes()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def made() -> dict:
    """{pack: its bytes} of what is laid out."""
    groups = {}
    for path in laid_out():
        groups.setdefault(pack_of(path), []).append(path)
    return {name: archive(paths) for name, paths in groups.items()}


def stored() -> dict:
    return {path.stem: path.read_bytes() for path in sorted(PACKS.glob("*.tar"))}


def members(data: bytes) -> dict:
    """{path: bytes of a file, or target of a link}"""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: one.linkname if one.issym() else tar.extractfile(one).read() for one in tar}


@contextlib.contextmanager
def alone():
    """One process at a time."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody builds the tests
        yield
        return
    with open(HERE / ".unpacked.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def at_one_stroke(path: pathlib.Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    if isinstance(content, str):
        beside.symlink_to(content)
    else:
        beside.write_bytes(content)
    os.replace(beside, path)


def remember(packs: dict, files: dict) -> None:
    at_one_stroke(STATE, json.dumps({"packs": packs, "files": files}, indent=0, sort_keys=True).encode())


def unpack() -> list:
    """Lays out what changed; the paths of files that were written since, and are left."""
    PACKS.mkdir(exist_ok=True)
    with alone():
        before = json.loads(STATE.read_text()) if STATE.exists() else {"packs": {}, "files": {}}
        packs = {path.stem: digest(path.read_bytes()) for path in sorted(PACKS.glob("*.tar"))}
        if packs == before["packs"] and all(os.path.lexists(HERE / path) for path in before["files"]):
            return []
        wanted = {}
        for data in stored().values():
            wanted |= members(data)
        files, left = {}, []
        for path, content in wanted.items():
            new = "-> " + content if isinstance(content, str) else digest(content)
            now = state_of(HERE / path)
            if now not in (None, new, before["files"].get(path)):
                left.append(path)
                continue
            if now != new:
                at_one_stroke(HERE / path, content)
            files[path] = new
        for path in before["files"].keys() - wanted.keys():
            if state_of(HERE / path) == before["files"][path]:
                (HERE / path).unlink()
                with contextlib.suppress(OSError):  # not empty yet
                    for folder in (HERE / path).parents:
                        folder.rmdir()
        remember(packs if not left else {}, files)
    return left


def pack() -> list:
    """Writes the packs that changed; their names."""
    with alone():
        PACKS.mkdir(exist_ok=True)
        new, old = made(), stored()
        for name in old.keys() - new.keys():
            (PACKS / f"{name}.tar").unlink()
        changed = [name for name, data in new.items() if old.get(name) != data]
        for name in changed:
            at_one_stroke(PACKS / f"{name}.tar", new[name])
        remember({name: digest(data) for name, data in new.items()}, {path: state_of(HERE / path) for path in laid_out()})
    return sorted([*changed, *(old.keys() - new.keys())])


def differing() -> list:
    """Paths that are laid out otherwise than packed, or only one of the two."""
    packed = {}
    for data in stored().values():
        packed |= {path: "-> " + content if isinstance(content, str) else digest(content) for path, content in members(data).items()}
    now = {path: state_of(HERE / path) for path in laid_out()}
    return sorted(path for path in packed.keys() | now.keys() if packed.get(path) != now.get(path))


def main(words) -> int:
    if words == ["unpack"]:
        left = unpack()
        if left:
            print("written since they were unpacked, and left as they are: " + " ".join(left[:5]) + (" ..." if left[5:] else ""),
                  "keep them with: python3 tests/golden/packs.py pack; or delete them, then: python3 tests/golden/packs.py unpack",
                  sep="\n", file=sys.stderr)
        return 0
    if words == ["pack"]:
        print(*pack(), sep="\n")
        return 0
    if words == ["check"]:
        print(*(paths := differing()), sep="\n")
        return 1 if paths else 0
    print(__doc__.split("\n")[0], file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
