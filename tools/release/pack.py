# SPDX-License-Identifier: Apache-2.0
"""pack.py COMMAND ... - archives of a release, byte for byte the same whenever they are made of the same files: names
in order, no owner, one time (SOURCE_DATE_EPOCH), no name of a machine.

  archives            tarballs and the zip of the programs
  wheels SDIST        wheels, with what the sdist says of itself
  image               the OCI image: dist/fletch-VERSION-oci.tar, both architectures
Reads build-release/TARGET as tools/release/build.sh leaves it, writes to the folder DIST (build-release/dist)."""
import base64
import fnmatch
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = ROOT / "build-release"
DIST = pathlib.Path(os.environ.get("DIST", BUILDS / "dist"))
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))
VERSION = re.search(r'#define FLETCH_VERSION\s+"([^"]+)"', (ROOT / "include/fletch.h").read_text())[1]
SOURCES = ROOT / ".cache/sources"


def table(name):
    lines = (ROOT / "tools/release" / name).read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def zig(pattern):
    return next((ROOT / "build/pip/lib").glob("python3*/site-packages/" + pattern))


def linked(target):
    """[(name, version, licence, text)] of what is inside that target's files."""
    found = []
    for name, package, licence, text, targets in table("linked.tsv"):
        if any(fnmatch.fnmatch(target, pattern) for pattern in targets.split()):
            path = zig("ziglang/" + text[4:]) if text.startswith("zig/") else SOURCES / text
            found.append((name, version_of(package, text), licence, path.read_text(encoding="utf-8", errors="replace")))
    return found


def source_archive(package):
    return next(path for path in sorted((SOURCES / "apt").glob(f"{package}_*.orig.tar.*")) if path.suffix != ".asc")


def version_of(package, text):
    if package != "-":
        return source_archive(package).name.split("_")[1].split(".orig")[0]
    if text.startswith("zig/"):
        return "as in zig " + zig("ziglang-*.dist-info").name.removesuffix(".dist-info").split("-")[1]
    return subprocess.run(["dpkg-query", "-Wf", "${source:Upstream-Version}", pathlib.Path(text).parent.name],
                          capture_output=True, text=True, check=True).stdout


def notice(target):
    text = "fletch is under the Apache License 2.0 (LICENSE). Compiled into this program:\n\n"
    for name, version, licence, words in linked(target):
        rule = "=" * 78
        text += f"{rule}\n{name} {version} ({licence})\n{rule}\n\n{words.strip()}\n\n"
    return text.encode()


def documents(target):
    """{path in the archive: bytes} beside the program itself."""
    files = {f"share/doc/fletch/{name}": (ROOT / name).read_bytes() for name in ("LICENSE", "README.md", "CHANGELOG.md")}
    files["share/doc/fletch/NOTICE"] = notice(target)
    if target == "windows":
        return {path.rsplit("/", 1)[1]: data for path, data in files.items()}
    files |= {"share/man/man1/fletch.1": (ROOT / "build/man/fletch.1").read_bytes(),
              "share/man/man5/fletch.toml.5": (ROOT / "build/man/fletch.toml.5").read_bytes(),
              "share/bash-completion/completions/fletch": (ROOT / "completions/fletch.bash").read_bytes(),
              "share/zsh/site-functions/_fletch": (ROOT / "completions/_fletch").read_bytes(),
              "share/fish/vendor_completions.d/fletch.fish": (ROOT / "completions/fletch.fish").read_bytes()}
    if "linux" in target:
        for unit in ("fletch.service", "fletch.socket"):
            files[f"lib/systemd/system/{unit}"] = (ROOT / "deploy/systemd" / unit).read_bytes().replace(
                b"/usr/bin/fletch", b"/usr/local/bin/fletch")
    else:
        files["share/fletch/fletch.plist"] = (ROOT / "deploy/launchd/fletch.plist").read_bytes()
    return files


def tar_bytes(files, owners=None):
    """An uncompressed tar. files: {path: bytes, or None for a folder}; what lies in bin/ may be executed."""
    out = io.BytesIO()
    folders = {str(parent) for path in files for parent in pathlib.PurePosixPath(path).parents} - {"."}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folders | set(files)):
            data = files.get(path)
            entry = tarfile.TarInfo(path)
            entry.mtime, entry.mode = EPOCH, 0o755 if data is None or "bin/" in path else 0o644
            entry.uid = entry.gid = (owners or {}).get(path, 0)
            entry.mode = 0o1777 if path == "tmp" else entry.mode
            entry.type, entry.size = (tarfile.DIRTYPE, 0) if data is None else (tarfile.REGTYPE, len(data))
            tar.addfile(entry, io.BytesIO(data or b""))
    return out.getvalue()


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(max(EPOCH, 315532800))[:6])
            entry.external_attr = (0o100755 if name.endswith((".so", "scripts/fletch")) else 0o100644) << 16
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            out.writestr(entry, data, compresslevel=9)


def told(path):
    print(f"   {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {path.stat().st_size:,} bytes", file=sys.stderr)


def make_archives():
    for target, name, *_ in table("targets.tsv"):
        if name == "-":
            continue
        top = f"fletch-{VERSION}-{name}"
        if target == "windows":
            files = {"fletch.exe": (BUILDS / target / "fletch.exe").read_bytes()} | documents(target)
            write_zip(DIST / f"{top}.zip", {f"{top}/{path}": data for path, data in sorted(files.items())})
            told(DIST / f"{top}.zip")
            continue
        files = {"bin/fletch": (BUILDS / target / "fletch").read_bytes()} | documents(target)
        data = tar_bytes({f"{top}/{path}": data for path, data in files.items()})
        (DIST / f"{top}.tar.gz").write_bytes(gzip.compress(data, 9, mtime=0))
        told(DIST / f"{top}.tar.gz")


def make_wheels(sdist):
    with tarfile.open(sdist) as tar:
        metadata = tar.extractfile(f"fletch-{VERSION}/PKG-INFO").read()
    package = ROOT / "python/src/fletch"
    python = {f"fletch/{path.relative_to(package)}": path.read_bytes() for path in sorted(package.rglob("*"))
              if path.suffix in (".py", ".pyi") or path.name == "py.typed"}
    for target, _, tag, *_ in table("targets.tsv"):
        if tag == "-":
            continue
        module, program = ("_fletch.pyd", "fletch.exe") if target == "windows" else ("_fletch.abi3.so", "fletch")
        info = f"fletch-{VERSION}.dist-info"
        tags = "".join(f"Tag: cp311-abi3-{one}\n" for one in tag.split("."))
        files = python | {
            f"fletch/{module}": (BUILDS / target / "python/fletch" / module).read_bytes(),
            f"fletch-{VERSION}.data/scripts/{program}": (BUILDS / target / program).read_bytes(),
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: fletch tools/release\nRoot-Is-Purelib: false\n{tags}\n".encode(),
            f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
            f"{info}/licenses/NOTICE": notice(target)}
        rows = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}"
                for name, data in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        path = DIST / f"fletch-{VERSION}-cp311-abi3-{tag}.whl"
        write_zip(path, files)
        told(path)


def certificates():
    """Mozilla's, of Debian's ca-certificates; not this machine's own bundle, which its owner may have added to."""
    folder = pathlib.Path("/usr/share/ca-certificates/mozilla")
    return b"".join(path.read_bytes().strip() + b"\n" for path in sorted(folder.glob("*.crt")))


def make_image():
    """deploy/Dockerfile's image by no docker: one layer with the static program, and what it reads."""
    blobs = {}

    def blob(data, kind, **more):
        if not isinstance(data, bytes):
            data = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)} | more

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    manifests = []
    for target, architecture in (("x86_64-linux-musl", "amd64"), ("aarch64-linux-musl", "arm64")):
        nobody = 65532
        layer = tar_bytes(
            {"usr/bin/fletch": (BUILDS / target / "fletch").read_bytes(), "usr/share/doc/fletch/NOTICE": notice(target),
             "usr/share/doc/fletch/LICENSE": (ROOT / "LICENSE").read_bytes(),
             "etc/ssl/certs/ca-certificates.crt": certificates(), "etc/nsswitch.conf": b"hosts: files dns\n",
             "etc/passwd": b"fletch:x:65532:65532::/models:/nonexistent\n", "tmp": None, "models": None, "keys": None},
            owners={"models": nobody, "tmp": nobody})
        config = {
            "architecture": architecture, "os": "linux", "created": created,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": created, "created_by": "tools/release/pack.py image"}],
            "config": {
                "User": str(nobody), "Entrypoint": ["/usr/bin/fletch"], "Cmd": ["serve"], "StopSignal": "SIGTERM",
                "Env": ["PATH=/usr/bin", "HOME=/models", "FLETCH_MODEL_CACHE_DIR=/models", "FLETCH_SERVER_HOST=0.0.0.0",
                        "FLETCH_SERVER_PORT=9900", "FLETCH_SERVER_API_KEY_FILE=/keys/keys", "FLETCH_SERVER_LOG_FORMAT=json"],
                "Volumes": {"/models": {}}, "ExposedPorts": {"9900/tcp": {}},
                "Healthcheck": {"Test": ["CMD", "/usr/bin/fletch", "health"], "Interval": 10_000_000_000,
                                "Timeout": 6_000_000_000, "StartPeriod": 120_000_000_000},
                "Labels": {"org.opencontainers.image.title": "fletch", "org.opencontainers.image.version": VERSION,
                           "org.opencontainers.image.licenses": "Apache-2.0"}}}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": blob(config, "config.v1+json"),
                    "layers": [blob(gzip.compress(layer, 9, mtime=0), "layer.v1.tar+gzip")]}
        manifests.append(blob(manifest, "manifest.v1+json", platform={"architecture": architecture, "os": "linux"}))
    kind = "application/vnd.oci.image.index.v1+json"
    index = blob({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}, "index.v1+json",
                 annotations={"org.opencontainers.image.ref.name": VERSION})
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [index]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    path = DIST / f"fletch-{VERSION}-oci.tar"
    path.write_bytes(tar_bytes(blobs))
    told(path)


if __name__ == "__main__":
    DIST.mkdir(parents=True, exist_ok=True)
    {"archives": make_archives, "wheels": make_wheels, "image": make_image}[sys.argv[1]](*sys.argv[2:])
