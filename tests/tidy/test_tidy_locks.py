# SPDX-License-Identifier: Apache-2.0
"""What base/locked.h says is checked: clang follows each lock through every file that names one."""
import concurrent.futures
import re

import house

CLANG = ["clang", "-fsyntax-only", "-std=gnu17", "-D_GNU_SOURCE", "-Iinclude", "-Isrc", "-Wthread-safety", "-Werror=thread-safety"]
ROOMS = ("scheduler", "requests", "session", "server", "store") # every file of these
ROLE = re.compile(r"\bFL_LOCK_ROLE\(")
MUTEX = re.compile(r"\bpthread_mutex_(?:un)?lock\(")
BARE_MAX = 17 # calls of pthread_mutex_lock and unlock in these rooms that no role stands for


def complaints(path) -> str:
    done = house.run(*CLANG, path, cwd=house.ROOT)
    return done.stderr if done.returncode else ""


def test_who_needs_the_lock_has_it():
    files = [path for room in ROOMS for path in sorted((house.ROOT / "src" / room).glob("*.c"))]
    files += [path for path in house.c_files("src") if path.suffix == ".c" and ROLE.search(house.code(path))]
    assert len(files) > 100
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = "".join(pool.map(complaints, files))
    assert not found, "\n" + found


def test_a_lock_has_a_role():
    """What is locked without one is not checked: those of the store that are handed about, a gate, a lock of the disk."""
    found = [f"{house.name(path)}:{number}" for room in ROOMS for path in house.c_files(f"src/{room}")
             for number, line in enumerate(house.code(path).split("\n"), 1) if MUTEX.search(line)]
    assert len(found) <= BARE_MAX, found
    assert len(found) > BARE_MAX - 4, f"{len(found)}: lower BARE_MAX"


def test_no_comment_says_who_holds_a_lock():
    """It says FL_REQUIRES, which is checked."""
    found = [house.name(path) for path in house.c_files("src") if "(locked)" in house.text(path)]
    assert not found, found


def test_a_field_read_without_the_lock_is_found(tmp_path):
    wrong = tmp_path / "wrong.c"
    begin = '#include "requests/open_model.h"\nvoid f(fletch_model *m);\n'
    wrong.write_text('#include "requests/open_model.h"\nbool f(fletch_model *m);\nbool f(fletch_model *m) { return m->closing; }\n')
    assert "requires holding role" in complaints(wrong)
    wrong.write_text(begin + "void f(fletch_model *m) { fl_scheduler_dispatch(&m->scheduler); }\n")
    assert "requires holding role" in complaints(wrong)
    wrong.write_text(begin + "void f(fletch_model *m) { fl_model_lock(m); fl_scheduler_dispatch(&m->scheduler); fl_model_unlock(m); }\n")
    assert not complaints(wrong)
    wrong.write_text(begin + "void f(fletch_model *m) { fl_model_lock(m); if (m->live) return; fl_model_unlock(m); }\n")
    assert "still held" in complaints(wrong) or "not held on every path" in complaints(wrong)
