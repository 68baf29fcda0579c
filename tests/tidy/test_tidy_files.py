# SPDX-License-Identifier: Apache-2.0
"""Every C file: licence line, first comment that names it, limits, no forbidden call, part of the build."""
import fnmatch
import json
import re
import subprocess

import house

LINES_MAX = 1000
FUNCTION_MAX = 70
COMMENTED_MAX = 100  # of a function whose body has a comment in every twenty lines
COLUMNS_MAX = 100
COMMENT_MAX = 120
EXCEPTIONS_MAX = 0  # lines in exceptions.txt; lower it when the list shrinks, never raise it

GENERATED = re.compile(r"(generated|made|written) by tools/", re.I)

# name -> why, and what instead; the program (src/cli) may print and end, the library may not.
FORBIDDEN_EVERYWHERE = {
    "strcpy": "memcpy with a checked size", "strcat": "fl_buf", "sprintf": "snprintf",
    "vsprintf": "vsnprintf", "gets": "getline", "strtok": "a scan of one's own",
    "atoi": "base/number.h", "atol": "base/number.h", "atof": "base/number.h",
    "abort": "an error", "system": "nothing", "tmpnam": "mkstemp", "alloca": "an arena",
}
FORBIDDEN_LIBRARY = {
    "exit": "an error", "_exit": "an error", "printf": "the log callback",
    "vprintf": "the log callback", "puts": "the log callback", "putchar": "the log callback",
    "perror": "the log callback", "setlocale": "nothing: it is the caller's",
    "signal": "nothing: signals are the caller's", "strerror": "strerror_r: strerror is not thread-safe",
    "localtime": "localtime_r", "gmtime": "gmtime_r", "getenv": None, "setenv": "nothing",
    "strtod": "base/number.h: it follows the locale", "strtof": "base/number.h",
} | {name + kind: "base/elementary.h: the C library's last digits differ from system to system" for kind in ("", "f", "l") for name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "sin", "cos", "tan", "tanh", "sinh", "cosh", "erf", "erfc", "cbrt",
    "hypot", "lgamma", "tgamma")} | {"fmaf": "vec_fma or ref_fma", "fma": "vec_fma"}
HEAP = {word: "base/mem.h" for word in (
    "malloc", "calloc", "realloc", "reallocarray", "free", "strdup", "strndup", "asprintf", "vasprintf",
    "posix_memalign", "aligned_alloc")}


def library_files():
    return [path for path in house.c_files("src") if not {"cli", "server", "store"} & set(path.parts)]


def functions(path):
    """(name, first line, number of lines) of every function; the layout is clang-format's, so what begins in
    column 0 and opens a brace ends at the next brace in column 0."""
    found, head, first, name = [], "", 0, None
    for number, line in enumerate(house.code(path).split("\n"), 1):
        if name is not None:  # inside a body
            if line.startswith("}"):
                if name:
                    found.append((name, first, number - first + 1))
                name, head = None, ""
            continue
        if not head:
            if not line or line[0].isspace() or line[0] in "#}":
                continue
            first = number
        head += " " + line.strip()
        if head.endswith("{"):
            match = re.match(r"[^={}]*?\b([A-Za-z_]\w*)\s*\(", head)
            name = match.group(1) if match else ""
        elif head.endswith((";", "}", ")")) and not line.rstrip().endswith(")") or not line.strip():
            head = ""
    return found


def test_first_lines_are_licence_and_a_comment_that_names_the_file():
    wrong = []
    for path in house.c_files():
        lines = house.text(path).split("\n")
        head = "\n".join(lines[1:4])
        if lines[0] != "/* SPDX-License-Identifier: Apache-2.0 */":
            wrong.append(f"{house.name(path)}:1: must be the SPDX line")
        elif not head.lstrip().startswith("/*") or path.name not in head:
            wrong.append(f"{house.name(path)}:2: the first comment must begin with '{path.name} - its job'")
    assert not wrong, "\n" + "\n".join(wrong)


NAMED_FILE = re.compile(r"(?<![\w*])[a-z0-9_/]*[a-z0-9]\.(?:c|py|cu)\b(?!\w)")


def test_names_of_files_are_unique():
    """One answer from ctags, gdb and grep; CMakeLists.txt is a name that CMake chose."""
    places = {}
    for path in house.c_files("src", "include"):
        places.setdefault(path.name, []).append(house.name(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


# Each engine completes what engine.h leaves open, each instruction set gives wide/ its own vectors, each loop its own inside.
TYPES_OF_SEVERAL = {"fl_engine", "fl_loop"}


def test_names_of_types_are_unique():
    """Those that files share: fl_request is one thing in the whole tree. A private one begins with no fl_."""
    places = {}
    for path in house.c_files("src", "include"):
        code = house.code(path)
        bodies = re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", code) + re.findall(r"^\}\s*(\w+);", code, re.M)
        for name in bodies:
            places.setdefault(name, set()).add(house.name(path))
    wrong = {name: sorted(found) for name, found in places.items()
             if len(found) > 1 and name.startswith("fl") and name not in TYPES_OF_SEVERAL}
    assert wrong == {}


GLOBAL = re.compile(r"^(?!static|typedef|extern|#)[A-Za-z_][\w *]*?\b(fl_\w+)\([^;{]*\)\s*\{", re.M)


def test_a_function_of_one_file_is_static():
    """What is declared for others is used by others: of the tree, its tests, tools or benchmarks."""
    texts = {path: house.code(path) for path in house.c_files("src", "tests", "bench", "tools")}
    users = {}
    for path, code in texts.items():
        for word in set(re.findall(r"\bfl_\w+", code)):
            users.setdefault(word, set()).add(path)
    wrong = []
    for path in house.c_files("src"):
        if path.suffix == ".c":
            for match in GLOBAL.finditer(texts[path]):
                others = [user for user in users[match[1]] if user != path and
                          (user.suffix == ".c" or len(re.findall(rf"\b{match[1]}\b", texts[user])) > 1)]
                if not others:
                    wrong.append(f"{house.name(path)}: {match[1]}")
    assert not wrong, "\n" + "\n".join(wrong)


LADDER = re.compile(r"^ {4}(?:int )?status +=[^;]*;\n(?: {4}if \(status == (?:FLETCH_OK|0)[^{;]*?\)(?: \{\n {8}status +=[^;]*;\n"
                    r" {4}\}\n|\n {8}status +=[^;]*;\n))+ {4}return status;\n", re.M)
PASSED = re.compile(r"^ +int +status +=[^;]*;\n +if \(status (?:<|!=) (?:0|FLETCH_OK)\)(?: \{)?\n +return status;\n(?=(.*?)^\})", re.M | re.S)
POSITIVE = {"src/server/http1.c"}  # a failure is a status of HTTP


def test_a_failure_is_passed_on_by_fl_try():
    """Where nothing must be given back: no ladder down to `return status;`, no status that is only asked and returned."""
    wrong = []
    for path in house.c_files("src"):
        code = house.code(path)
        found = list(LADDER.finditer(code))
        found += [match for match in PASSED.finditer(code) if not re.search(r"(?<![.>])\bstatus\b", match[1])]
        wrong += [f"{house.name(path)}:{code[:match.start()].count(chr(10)) + 1}: use FL_TRY" for match in found
                  if house.name(path) not in POSITIVE]
    assert not wrong, "\n" + "\n".join(wrong)


def test_files_that_a_first_comment_names_are_there():
    """A reader who follows "Proof tests/unit/test_x.c" must find it; a name in capitals stands for any."""
    there = ["/" + house.name(path) for folder in (*house.FOLDERS, "tools", "lab")
             for path in (house.ROOT / folder).rglob("*.*")]
    wrong = []
    for path in house.c_files():
        head = house.text(path).split("*/")[1]
        wrong += [f"{house.name(path)}: names {name}, which is no file" for name in NAMED_FILE.findall(head)
                  if not any(file.endswith("/" + name) for file in there)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_scripts_and_build_files_carry_the_licence():
    wrong = []
    for pattern in ("tools/*.sh", "tools/*.py", "tests/**/*.py", "python/**/*.py", "python/**/*.pyi", "bench/*.py", "**/CMakeLists.txt", "cmake/*.cmake",
                    "Makefile"):
        for path in house.ROOT.glob(pattern):
            if path.parts[len(house.ROOT.parts)].startswith(("build", ".")):
                continue
            head = "\n".join(path.read_text().split("\n")[:3])
            if "SPDX-License-Identifier: Apache-2.0" not in head:
                wrong.append(house.name(path))
    assert not wrong, f"no SPDX line: {wrong}"


def test_files_keep_to_the_length():
    known = house.exceptions("lines")
    wrong = []
    for path in house.c_files():
        count = house.text(path).count("\n")
        if count > max(LINES_MAX, known.get(house.name(path), 0)) and not GENERATED.search(house.text(path)[:2000]):
            wrong.append(f"{house.name(path)}: {count} lines, at most {LINES_MAX}")
        elif house.name(path) in known and count != known[house.name(path)]:
            wrong.append(f"{house.name(path)}: exceptions.txt says {known[house.name(path)]}, it has {count}: mend the list")
    assert not wrong, "\n" + "\n".join(wrong)


def test_functions_keep_to_the_length():
    known, wrong, seen = house.exceptions("function"), [], set()
    for path in house.c_files("src", "python", "examples"):
        for function, line, count in functions(path):
            key = f"{house.name(path)}:{function}"
            body = house.text(path).split("\n")[line - 1:line - 1 + count]
            if count > (COMMENTED_MAX if sum("/*" in row for row in body) * 20 >= count else FUNCTION_MAX):
                seen.add(key)
                if known.get(key) != count:
                    wrong.append(f"{house.name(path)}:{line}: {function} has {count} lines, at most {FUNCTION_MAX}")
    wrong += [f"{key} in exceptions.txt is no longer needed: take it out" for key in known if key not in seen]
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_comparison_is_laid_out_as_a_template():
    """clang-format takes `a < b, c = d > e` for one, and writes a<b, c = d> e: such a line wants to be two."""
    wrong = [f"{house.name(path)}:{number}: {row.strip()}" for path in house.c_files()
             for number, row in enumerate(house.code(path).split("\n"), 1)
             if re.search(r"\w<\w", row) and not row.lstrip().startswith("#")]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_function_counter_counts(tmp_path):
    sample = tmp_path / "sample.c"
    sample.write_text("static int small(int a,\n                 int b) {\n    return a + b;\n}\n\n"
                      "static const int table[] = {\n    1,\n};\n\nvoid big(void)\n{\n" + "    ;\n" * 80 + "}\n")
    assert functions(sample) == [("small", 1, 4), ("big", 10, 83)]


def test_lines_keep_to_the_width():
    """100 columns of code; a comment may run on a little where breaking it would read worse."""
    wrong = []
    for path in house.c_files():
        if GENERATED.search(house.text(path)[:2000]):
            continue
        for number, (line, bare) in enumerate(zip(house.text(path).split("\n"), house.bare(path).split("\n")), 1):
            if len(bare.rstrip()) > COLUMNS_MAX or len(line) > COMMENT_MAX:
                wrong.append(f"{house.name(path)}:{number}: {len(line)} columns")
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_family_is_a_table():
    """At most 60 lines each, and no model_type stands elsewhere in the program."""
    types, wrong = set(), []
    for path in sorted((house.ROOT / "src/model/families").glob("*.c")):
        text = house.text(path)
        for words in re.findall(r"\.model_types\s*= \{([^}]*)\}", text):
            types |= set(re.findall(r'"([^"]+)"', words))
        if len(text.split("\n")) > 61:
            wrong.append(f"{house.name(path)}: more than 60 lines")
        if re.search(r"\b(if|for|while|switch|return)\b", house.code(path)):
            wrong.append(f"{house.name(path)}: has logic")
    assert {"bert", "mpnet", "modernbert"} <= types
    for path in house.c_files("src"):
        if path.parent.name != "families":
            wrong += [f"{house.name(path)}: \"{word}\"" for word in types if f'"{word}"' in house.bare(path)]
    assert not wrong, "\n" + "\n".join(wrong)


# Telemetry is switched off before the library is loaded.
PROCESS_CALLS = {"src/engines/onnxruntime/library.c": {"setenv"}}


def test_no_forbidden_function_is_called():
    wrong = []
    for path in house.c_files("src"):
        if path.parent.name == "windows":  # it stands in for the C library
            continue
        in_library = path in library_files()
        words = dict(FORBIDDEN_EVERYWHERE)
        if in_library:
            words |= {word: instead for word, instead in FORBIDDEN_LIBRARY.items() if instead}
        if house.name(path) not in ("src/base/mem.c",):
            words |= HEAP
        words = {word: instead for word, instead in words.items()
                 if word not in PROCESS_CALLS.get(house.name(path), ())}
        pattern = re.compile(r"(?<![\w.>])(" + "|".join(words) + r")\s*\(")
        for number, line in enumerate(house.code(path).split("\n"), 1):
            for match in pattern.finditer(line):
                wrong.append(f"{house.name(path)}:{number}: {match.group(1)}: use {words[match.group(1)]}")
            if in_library and re.search(r"\bfprintf\s*\(\s*(stderr|stdout)\b", line):
                wrong.append(f"{house.name(path)}:{number}: the library never prints")
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_name_with_two_underscores_of_our_own():
    wrong = []
    for path in house.c_files("include", "src"):
        for number, line in enumerate(house.code(path).split("\n"), 1):
            for word in re.findall(r"\b(?:fl|fletch|FL|FLETCH)_(?:\w*_)?_\w*", line):
                wrong.append(f"{house.name(path)}:{number}: {word}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_source_file_is_in_the_build():
    commands = json.loads((house.BUILD / "compile_commands.json").read_text())
    built = {entry["file"] for entry in commands}
    machines = {"neon": ("aarch64",), "avx2": ("x86_64",), "avx512": ("x86_64",), "amx": ("x86_64",)}
    module = house.ROOT / "src/engines/cuda"
    if str(module / "module.c") not in built:  # no nvcc: the CUDA module is left out, its loader is not
        built |= {str(path) for path in module.glob("*.c") if path.name != "loader.c"}
    import platform
    plain = "_plain" if platform.machine() == "x86_64" else "_x86"  # of two, the one for other processors
    wrong = [house.name(path) for path in house.c_files("src") if path.suffix == ".c"
             and str(path) not in built and platform.machine() in machines.get(path.parent.name, (platform.machine(),))
             and not path.stem.endswith(plain)]
    lists = "".join((house.ROOT / name).read_text() for name in  # those of other systems are at least listed
                    ("src/base/CMakeLists.txt", "src/cli/CMakeLists.txt", "cmake/fletch.cmake"))
    others = re.compile(r"src/base/(windows/|os_)|src/cli/no_server")
    wrong = [name for name in wrong if not others.match(name) or name.rsplit("/", 1)[1] not in lists]
    listed = set(re.findall(r"\w+\.c\b", (house.ROOT / "python/CMakeLists.txt").read_text()))
    wrong += [house.name(path) for path in house.c_files("python") if path.suffix == ".c" and path.name not in listed]
    assert not wrong, f"in no CMakeLists.txt: {wrong}"


def test_the_list_of_exceptions_only_shrinks():
    lines = [line for line in (house.ROOT / "tests/tidy/exceptions.txt").read_text().splitlines()
             if line.strip() and not line.startswith("#")]
    assert len(lines) == EXCEPTIONS_MAX, f"{len(lines)} exceptions, EXCEPTIONS_MAX is {EXCEPTIONS_MAX}"


def test_python_downloads_the_files_that_the_library_does():
    """_FILES of the package beside the table of the library: huggingface_hub matches with fnmatch too."""
    table = re.search(r"root\[\] = \{(.*?)\};", house.text(house.ROOT / "src/hub/hub_snapshot.c"), re.S)[1]
    names = re.findall(r'^ *"([^"]+)"', table, re.M)
    files = re.search(r"^_FILES = \[(.*?)\]\n", house.text(house.ROOT / "python/src/fletch/_hub.py"), re.M | re.S)[1]
    patterns = re.findall(r'"([^"]+)"', files)
    assert len(names) > 10 and len(patterns) > 5
    unknown = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    known = {"*.json", "model*.safetensors", *names}
    more = [pattern for pattern in patterns if "/" not in pattern and pattern not in known]
    assert not unknown and not more, (unknown, more)


def test_no_promise_is_left_in_the_code():
    wrong = [f"{house.name(path)}:{number}" for path in house.c_files()
             for number, line in enumerate(house.text(path).split("\n"), 1)
             if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)]
    assert not wrong, f"finish it or say it in an issue: {wrong}"


def test_tests_that_security_names_are_there():
    """FILE::NAME, of pytest or Criterion."""
    named = re.findall(r"(\S+?\.(?:py|c))::(\w+)", (house.ROOT / "SECURITY.md").read_text())
    for path, name in named:
        text = (house.ROOT / path).read_text()
        assert re.search(rf"def {name}\(|Test\(\w+, {name}\b", text), f"SECURITY.md: {path} has no test {name}"
    assert len(named) > 40


def test_each_promise_of_the_providers_names_tests_that_are_there():
    """docs/providers.md: promise, key, test, how far."""
    text = (house.ROOT / "docs/providers.md").read_text()
    rows = text.partition("| promise |")[2].partition("\n\n")[0].splitlines()[2:]
    there = {path.name for folder in ("tests", "python/tests") for path in (house.ROOT / folder).rglob("test_*")}
    for row in rows:
        named = set(re.findall(r"\btest_\w+\.(?:py|c)\b", row.split("|")[3]))
        assert named and named <= there, f"docs/providers.md: {row.split('|')[1].strip()}: {sorted(named - there)}"
    assert len(rows) > 25


def test_programs_of_the_benchmarks_compile():
    """No default target builds them, and they stand on inner headers, which change."""
    for source in sorted((house.ROOT / "bench").rglob("*.c")):
        done = subprocess.run(["cc", "-D_GNU_SOURCE", "-std=gnu17", "-fsyntax-only", "-Werror", f"-I{house.ROOT}/include",
                               f"-I{house.ROOT}/src", source], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_what_stands_in_for_libraries_has_every_function_of_its_header():
    """Otherwise a minimal build, the one for a bare machine with a GPU, does not link."""
    for source in sorted((house.ROOT / "bench/gpu/alone").glob("*.c")):
        text = source.read_text()
        header = house.ROOT / "src" / re.search(r'#include "(.+)"', text)[1]
        declared, defined = (set(re.findall(r"^\w.*?\b(fl_\w+)\(", code, re.M)) for code in (header.read_text(), text))
        assert declared and declared <= defined, f"{source.name}: {sorted(declared - defined)}"


# How messages do not speak -> the words of the field.
STRANGE = {r"(?<!there )\bis no\b": "is not a", r"\btold\b": "reported, logged, by default", r"\bbehind\b": "after",
           r"\b[Nn]obody\b": "name who: no client, no provider"}


def test_what_a_system_lacks_is_taken_from_os_h():
    """macOS has no pthread_mutex_timedlock, say; who calls it without base/os.h compiles everywhere but there."""
    lacking = re.findall(r"#define (\w+) +darwin_\w+", house.text(house.ROOT / "src/base/os.h"))
    assert lacking
    for path in house.c_files("src"):
        called = set(lacking) & set(re.findall(r"\w+", house.code(path)))
        assert not called or re.search(r'base/(os|os_\w+)\.h"', house.text(path)) or path.name == "os.h", (house.name(path), called)


def test_the_stand_in_for_criterion_has_what_tests_call():
    """tests/unit is compiled with it for other systems and the thread sanitizer, which `make check` does not build."""
    defined = re.findall(r"#define (cr_\w+)", house.text(house.ROOT / "tests/unit/without_criterion/criterion/criterion.h"))
    called = {name for path in house.c_files("tests") if "<criterion/criterion.h>" in house.text(path)
              for name in re.findall(r"\b(cr_\w+)\(", house.text(path))}
    assert called and called <= set(defined), called - set(defined)


def test_messages_are_in_the_words_of_the_field():
    wrong = []
    for path in house.c_files("src"):
        for match in re.finditer(r'"(?:\\.|[^"\\\n])*"', house.bare(path)):
            for words, instead in STRANGE.items():
                if re.search(words, match[0]):
                    line = house.bare(path).count("\n", 0, match.start()) + 1
                    wrong.append(f"{house.name(path)}:{line}: {match[0][:60]}: write {instead}")
    assert not wrong, "\n" + "\n".join(wrong)
