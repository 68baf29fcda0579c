# SPDX-License-Identifier: Apache-2.0
"""make install: everything lands below DESTDIR, and a stranger's program builds against it both ways."""
import os
import pathlib
import re
import shutil

import house
import pytest

PROGRAM = """#include <fletch.h>
#include <stdio.h>
int main(void) {
    fletch_config *config = fletch_config_new();
    printf("%s\\n", config ? fletch_version() : "no memory");
    fletch_config_free(config);
    return 0;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.20)
project(stranger C)
find_package(fletch 0.1 REQUIRED)
add_executable(stranger stranger.c)
target_link_libraries(stranger PRIVATE fletch::fletch)
add_executable(stranger_static stranger.c)
target_link_libraries(stranger_static PRIVATE fletch::static)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix below a DESTDIR."""
    destination = tmp_path_factory.mktemp("dest")
    result = house.run("cmake", "--install", house.BUILD, "--prefix", "/opt/fletch",
                       env={**os.environ, "DESTDIR": str(destination)})
    assert result.returncode == 0, result.stderr
    return destination / "opt/fletch"


@pytest.fixture
def stranger(tmp_path):
    (tmp_path / "stranger.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    return tmp_path


def library_folder(prefix):
    return next(prefix.glob("lib*/**/libfletch.so")).parent


def test_a_build_tree_in_path_is_no_package(tmp_path):
    """find_package looks beside what PATH names; what it found there pointed to files that are not there."""
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.split("add_executable")[0].replace("REQUIRED", "QUIET")
                                             + 'message("found: ${fletch_FOUND}")\n')
    path = f"{house.BUILD}:{house.BUILD}/bin:{os.environ['PATH']}"
    result = house.run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
                       env={**os.environ, "PATH": path})
    assert result.returncode == 0 and "found: 0" in result.stderr, result.stderr


def test_everything_is_laid_down(installed):
    there = {str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir()}
    for wanted in ("bin/fletch", "include/fletch.h", "libfletch.so", "libfletch.so.0", "libfletch.a",
                   "pkgconfig/fletch.pc", "cmake/fletch/fletchConfig.cmake",
                   "cmake/fletch/fletchConfigVersion.cmake", "man1/fletch.1", "completions/fletch",
                   "site-functions/_fletch", "fletch.fish"):
        assert any(path.endswith(wanted) for path in there), f"{wanted} is missing in {sorted(there)}"
    assert not (installed.parent.parent / "usr").exists()


def test_the_installed_program_finds_its_library(installed):
    result = house.run(installed / "bin/fletch", "version")
    assert result.returncode == 0, result.stderr
    assert "0.1.0" in result.stdout


def test_a_stranger_builds_with_pkg_config(installed, stranger):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed (make setup)")
    folder = library_folder(installed)
    flags = house.run("pkg-config", "--cflags", "--libs", "fletch",
                      env={**os.environ, "PKG_CONFIG_PATH": str(folder / "pkgconfig")})
    assert flags.returncode == 0, flags.stderr
    result = house.run("gcc", "-Wall", "-Werror", "stranger.c", "-o", "stranger", *flags.stdout.split(),
                       cwd=stranger)
    assert result.returncode == 0, result.stderr
    result = house.run(stranger / "stranger", env={**os.environ, "LD_LIBRARY_PATH": str(folder)})
    assert result.stdout == "0.1.0\n"


def test_the_program_of_the_readme_prints_what_it_says(installed, tmp_path):
    model = os.environ.get("FLETCH_MODEL", "")
    if not pathlib.Path(model, "model.safetensors").exists():
        pytest.skip("FLETCH_MODEL names no model folder (make model)")
    program = re.search(r"^```c\n(.*?)^```", (house.ROOT / "README.md").read_text(), re.M | re.S)[1]
    assert '"medium"' in program
    (tmp_path / "readme.c").write_text(program.replace('"medium"', f'"{model}"'))
    folder = library_folder(installed)
    result = house.run("gcc", "-Wall", "-Werror", "readme.c", "-o", "readme", "-I", installed / "include", "-L", folder,
                       "-lfletch", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    result = house.run(tmp_path / "readme", env={**os.environ, "LD_LIBRARY_PATH": str(folder)})
    assert result.stdout == re.search(r"/\* (\d\.\d{4}): ", program)[1] + "\n", result.stdout


def test_a_stranger_builds_with_find_package(installed, stranger):
    prefix = f"-DCMAKE_PREFIX_PATH={installed}"
    result = house.run("cmake", "-S", stranger, "-B", stranger / "b", "-G", "Ninja", prefix)
    assert result.returncode == 0, result.stderr
    result = house.run("ninja", "-C", stranger / "b")
    assert result.returncode == 0, result.stdout
    for program in ("stranger", "stranger_static"):
        assert house.run(stranger / "b" / program).stdout == "0.1.0\n"
