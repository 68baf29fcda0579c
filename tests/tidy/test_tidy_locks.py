# SPDX-License-Identifier: Apache-2.0
"""What base/locked.h says is checked: clang follows the model's lock through every file of scheduler, requests and session."""
import concurrent.futures

import house

CLANG = ["clang", "-fsyntax-only", "-std=gnu17", "-D_GNU_SOURCE", "-Iinclude", "-Isrc", "-Wthread-safety", "-Werror=thread-safety"]


def complaints(path) -> str:
    done = house.run(*CLANG, path, cwd=house.ROOT)
    return done.stderr if done.returncode else ""


def test_who_needs_the_lock_has_it():
    files = [path for room in ("scheduler", "requests", "session") for path in sorted((house.ROOT / "src" / room).glob("*.c"))]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = "".join(pool.map(complaints, files))
    assert not found, "\n" + found


def test_a_field_read_without_the_lock_is_found(tmp_path):
    wrong = tmp_path / "wrong.c"
    wrong.write_text('#include "requests/open_model.h"\nbool f(fletch_model *m);\nbool f(fletch_model *m) { return m->closing; }\n')
    assert "requires holding role" in complaints(wrong)
    wrong.write_text('#include "requests/open_model.h"\nvoid f(fletch_model *m);\nvoid f(fletch_model *m) { fl_scheduler_dispatch(&m->scheduler); }\n')
    assert "requires holding role" in complaints(wrong)
    wrong.write_text('#include "requests/open_model.h"\nvoid f(fletch_model *m);\n'
                     "void f(fletch_model *m) { fl_model_lock(m); fl_scheduler_dispatch(&m->scheduler); fl_model_unlock(m); }\n")
    assert not complaints(wrong)
