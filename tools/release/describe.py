# SPDX-License-Identifier: Apache-2.0
"""describe.py - what goes beside the archives of a release, made of the tables and the files themselves:
  fletch-VERSION.cdx.json        SBOM (CycloneDX 1.5): what is inside, its version, licence, and the archive it was compiled from
  fletch.rb, fletch.nix          Homebrew formula, Nix derivation
  fletch.winget.yaml, fletch.scoop.json   for Windows
  install.sh                     tools/release/install.sh with the release's address, version and key
  fletch-VERSION.intoto.json     provenance (in-toto, SLSA 1.0): of which commit and sources, by what
  SHA256SUMS                     of all of these
Reads and writes the folder DIST. FLETCH_URL is where that folder will be found; FLETCH_PUBLIC_KEY the key of minisign."""
import hashlib
import json
import os
import subprocess
import time
import uuid

from pack import DIST, EPOCH, ROOT, VERSION, linked, source_archive, table

URL = os.environ.get("FLETCH_URL", "https://fletch.invalid/releases/" + VERSION).rstrip("/")
KEY = os.environ.get("FLETCH_PUBLIC_KEY", "")
WHAT = "text in, vectors out, at the speed of the hardware"
HOME = URL.split("/releases")[0]
MADE_LAST = ("SHA256SUMS", "SHA256SUMS.minisig", f"fletch-{VERSION}.intoto.json")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def archive(system):
    """Name, address and hash of the archive for linux-x86_64 …"""
    name = f"fletch-{VERSION}-{system}" + (".zip" if system.startswith("windows") else ".tar.gz")
    return {"name": name, "url": f"{URL}/{name}", "sha256": sha256(DIST / name)}


def put(name, text):
    (DIST / name).write_text(text if isinstance(text, str) else json.dumps(text, indent=2) + "\n")


def sbom():
    components = {}
    for target, *_ in table("targets.tsv"):
        for name, version, licence, _ in linked(target):
            part = components.setdefault(name, {
                "type": "library", "name": name, "version": version, "licenses": [{"license": {"id": licence}}],
                "properties": []})
            part["properties"].append({"name": "fletch:target", "value": target})
    for name, package, *_ in table("linked.tsv"):
        if package != "-":
            source = source_archive(package)
            components[name] |= {"purl": f"pkg:deb/debian/{package}@{components[name]['version']}?arch=source",
                                 "hashes": [{"alg": "SHA-256", "content": sha256(source)}]}
    put(f"fletch-{VERSION}.cdx.json", {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, URL)}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
                     "component": {"type": "application", "name": "fletch", "version": VERSION, "description": WHAT,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": list(components.values())})


def brew():
    def where(system):
        found = archive(system)
        return f'url "{found["url"]}"\n      sha256 "{found["sha256"]}"'

    put("fletch.rb", f'''class Fletch < Formula
  desc "{WHAT[0].upper() + WHAT[1:]}"
  homepage "{HOME}"
  version "{VERSION}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      {where("macos-arm64")}
    end
    on_intel do
      {where("macos-x86_64")}
    end
  end
  on_linux do
    on_arm do
      {where("linux-aarch64")}
    end
    on_intel do
      {where("linux-x86_64")}
    end
  end

  def install
    bin.install "bin/fletch"
    man1.install "share/man/man1/fletch.1"
    man5.install "share/man/man5/fletch.toml.5"
    bash_completion.install "share/bash-completion/completions/fletch"
    zsh_completion.install "share/zsh/site-functions/_fletch"
    fish_completion.install "share/fish/vendor_completions.d/fletch.fish"
    doc.install Dir["share/doc/fletch/*"]
  end

  service do
    run [opt_bin/"fletch", "serve"]
    keep_alive successful_exit: false
    log_path var/"log/fletch.log"
    error_log_path var/"log/fletch.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/fletch version")
  end
end
''')


def nix():
    rows = "\n".join(f'    {nix_name} = {{ url = "{archive(system)["url"]}"; sha256 = "{archive(system)["sha256"]}"; }};'
                     for nix_name, system in (("x86_64-linux", "linux-x86_64"), ("aarch64-linux", "linux-aarch64"),
                                              ("aarch64-darwin", "macos-arm64"), ("x86_64-darwin", "macos-x86_64")))
    put("fletch.nix", f'''{{ stdenvNoCC, fetchurl, lib }}:
let
  archives = {{
{rows}
  }};
in
stdenvNoCC.mkDerivation {{
  pname = "fletch";
  version = "{VERSION}";
  src = fetchurl archives.${{stdenvNoCC.hostPlatform.system}};
  dontBuild = true;
  dontFixup = true; # static
  installPhase = "mkdir -p $out && cp -r bin share $out/";
  meta = {{
    description = "{WHAT}";
    license = lib.licenses.asl20;
    mainProgram = "fletch";
    platforms = builtins.attrNames archives;
  }};
}}
''')


def windows():
    found = archive("windows-x86_64")
    inside = found["name"].removesuffix(".zip")
    put("fletch.scoop.json", {
        "version": VERSION, "description": WHAT, "homepage": HOME, "license": "Apache-2.0",
        "architecture": {"64bit": {"url": found["url"], "hash": found["sha256"], "extract_dir": inside}},
        "bin": "fletch.exe"})
    put("fletch.winget.yaml", f'''# winget: singleton manifest
PackageIdentifier: fletch.fletch
PackageVersion: {VERSION}
PackageLocale: en-US
Publisher: fletch
PackageName: fletch
License: Apache-2.0
ShortDescription: {WHAT}
Installers:
- Architecture: x64
  InstallerType: zip
  NestedInstallerType: portable
  NestedInstallerFiles:
  - RelativeFilePath: {inside}\\fletch.exe
    PortableCommandAlias: fletch
  InstallerUrl: {found["url"]}
  InstallerSha256: {found["sha256"].upper()}
ManifestType: singleton
ManifestVersion: 1.6.0
''')


def install_script():
    text = (ROOT / "tools/release/install.sh").read_text()
    for word, value in (("@URL@", URL), ("@VERSION@", VERSION), ("@KEY@", KEY)):
        text = text.replace(word, value)
    put("install.sh", text)
    (DIST / "install.sh").chmod(0o755)


def provenance():
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    sources = [{"uri": f"pkg:deb/debian/{package}?arch=source", "digest": {"sha256": sha256(source_archive(package))}}
               for _, package, *_ in table("linked.tsv") if package != "-"]
    put(f"fletch-{VERSION}.intoto.json", {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{HOME}/make-release", "externalParameters": {"command": "make release", "url": URL},
                "internalParameters": {"SOURCE_DATE_EPOCH": EPOCH},
                "resolvedDependencies": [{"uri": HOME, "digest": {"gitCommit": commit}}, *sources]},
            "runDetails": {"builder": {"id": os.environ.get("FLETCH_BUILDER", f"{HOME}/a-machine-of-ours")}}}})


def files():
    return [path for path in sorted(DIST.iterdir()) if path.is_file() and path.name not in MADE_LAST]


if __name__ == "__main__":
    sbom()
    brew()
    nix()
    windows()
    install_script()
    provenance()
    put("SHA256SUMS", "".join(f"{sha256(path)}  {path.name}\n" for path in [*files(), DIST / MADE_LAST[2]]))
