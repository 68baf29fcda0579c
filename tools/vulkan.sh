#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# vulkan.sh - Mesa's lavapipe, a Vulkan device in software, into .cache/vulkan: with onnxruntime-webgpu's library
# (tools/onnxruntime.sh webgpu) it makes the provider webgpu testable on any x86-64 machine.
# Nothing is installed: Debian's packages are unpacked into that folder. WebGPU needs Mesa 25, which Debian 12 has in
# its backports; they are taken from where the system takes its own packages.
. "$(dirname "$0")/say.sh"

target=.cache/vulkan
stamp=$target/.version
newer=(mesa-vulkan-drivers libdrm2 libdrm-amdgpu1)
packages=(libvulkan1 libllvm15 libwayland-client0 libx11-6 libx11-xcb1 libxcb1 libxcb-dri3-0 libxcb-present0 libxcb-randr0 libxcb-shm0
          libxcb-sync1 libxcb-xfixes0 libxshmfence1 libxau6 libxdmcp6 libbsd0 libmd0 libelf1 libexpat1 libedit2 libz3-4 libffi8 libxml2
          libicu72 libtinfo6 libzstd1 liblzma5)
if [ -f "$stamp" ]; then
    say "vulkan: $target holds $(cat "$stamp")"
    exit 0
fi
# shellcheck disable=SC1091 # a file of the system
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ "$(uname -m)" = x86_64 ] && [ "$codename" = bookworm ] && command -v apt-get dpkg-deb >/dev/null ||
    stop "lavapipe is taken from Debian 12's packages for x86-64; this is another system" \
         "install Mesa 25 or later and set VK_ICD_FILENAMES"
archive=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
          awk -v release="$codename" '$2 == release { print $1; exit }')
[ -n "$archive" ] || stop "apt has no source for $codename" "see /etc/apt/sources.list"
say "vulkan: getting lavapipe into $target"
rm -rf "$target.new"
mkdir -p build "$target.new"/{lists/partial,archives/partial,packages,files}
place=$ROOT/$target.new
key=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in "$codename" "$codename-backports"; do
    echo "deb [signed-by=$key] $archive $suite main"
done >"$place/sources.list"
options=(-q -o "Dir::Etc::sourcelist=$place/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$place/lists"
         -o "Dir::Cache=$place" -o APT::Sandbox::User=root)
log=$ROOT/build/vulkan.log
if ! (cd "$place/packages" && apt-get "${options[@]}" update && apt-get "${options[@]}" download "${packages[@]}" "${newer[@]/%//$codename-backports}") >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -rf "$place"
    stop "apt-get could not get Mesa's packages (all of its output: build/vulkan.log)" "check the network and the package sources"
fi
for package in "$place"/packages/*.deb; do
    dpkg-deb -x "$package" "$place/files"
done
mkdir "$place/lib"
folder=$place/files/usr/lib/x86_64-linux-gnu
cp -L "$folder/libvulkan.so.1" "$folder/libvulkan_lvp.so" "$place/lib/"
LD_LIBRARY_PATH=$folder:$place/files/lib/x86_64-linux-gnu ldd "$folder/libvulkan_lvp.so" | awk '{ print $3 }' |
    grep "^$place" | xargs -I{} cp -L {} "$place/lib/"
version=$(basename "$place"/packages/mesa-vulkan-drivers_*.deb | cut -d_ -f2)
cat >"$place/lavapipe.json" <<JSON
{"file_format_version": "1.0.0", "ICD": {"library_path": "$ROOT/$target/lib/libvulkan_lvp.so", "api_version": "1.4.305"}}
JSON
(cd "$place" && rm -rf files packages lists archives sources.list ./*.bin && echo "Mesa $version" >.version)
rm -rf "$target"
mv "$target.new" "$target"
