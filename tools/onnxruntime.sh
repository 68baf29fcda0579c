#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime.sh [openvino|webgpu|ep-openvino|ep-webgpu|gpu] - the ONNX Runtime library for the processor, out of its Python wheel,
# into .cache/onnxruntime, where build/fletch and the tests find it; or the one with OpenVINO, with WebGPU, each of them as
# a plug-in, or with CUDA and TensorRT (256 MB to get, 315 MB kept), which the tests use, into .cache/onnxruntime-WORD.
# Nothing of Python is needed to use them.
. "$(dirname "$0")/say.sh"

package=onnxruntime${1:+-$1}
case $package in
onnxruntime) version=1.31.1 ;;
onnxruntime-openvino) version=1.24.1 ;;
onnxruntime-webgpu) version=1.27.0 ;;
onnxruntime-ep-openvino) version=1.8.1 ;;
onnxruntime-ep-webgpu) version=0.4.0 ;;
onnxruntime-gpu) version=1.31.1 ;;
*) stop "unknown library '$1'" "tools/onnxruntime.sh, or with the word openvino, webgpu, ep-openvino, ep-webgpu or gpu" ;;
esac
target=.cache/$package
stamp=$target/.version
if [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then
    say "$package: $target holds $version"
    exit 0
fi
say "$package: getting $version into $target"
rm -rf "$target.new"
mkdir -p build "$target.new"
log=build/$package.log
make_pip $log
if ! build/pip/bin/python -m pip download --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$target.new" "$package==$version" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -rf "$target.new"
    stop "pip could not get the $package wheel (all of its output: $log)" \
         "check the network or pip's index settings (pip config list), then try again"
fi
build/pip/bin/python - "$target.new" <<'PYTHON'
import pathlib, shutil, sys, zipfile
target = pathlib.Path(sys.argv[1])
for wheel in target.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            base = name.rsplit("/", 1)[-1]
            if base.startswith(("libonnxruntime", "libopenvino", "libtbb", "libhwloc")) or base in ("LICENSE", "ThirdPartyNotices.txt"):
                with archive.open(name) as source, open(target / base, "wb") as out:
                    shutil.copyfileobj(source, out)
    wheel.unlink()
if not list(target.glob("libonnxruntime*")):
    sys.exit("the wheel holds no libonnxruntime")
PYTHON
echo "$version" >"$target.new/.version"
rm -rf "$target"
mv "$target.new" "$target"
