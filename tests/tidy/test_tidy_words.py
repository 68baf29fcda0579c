# SPDX-License-Identifier: Apache-2.0
"""test_tidy_words.py - what people read is in plain English: messages without the words of a dialect, pages without sentences
that have to be read twice, and paths that exist."""
import ast
import re

import house

PAGES = sorted((*house.ROOT.glob("*.md"), *house.ROOT.glob("docs/**/*.md")))
# Word and what a reader expects in its place.
DIALECT = (
    (r"\bis no\b(?! longer)", "is not a"), (r"\bare no\b(?! longer)", "are not"), (r"\btold\b", "reported, set"), (r"\bnobody\b", "no client, nothing"),
    (r"\bbehind\b", "after"), (r"\bwant of\b", "lack of"), (r"\bfalls? out\b", "fails"), (r"\btakes? over\b", "falls back to"),
    (r"\bmends?\b", "fix"), (r"\banew\b", "again"), (r"\bgoes on\b", "continues"), (r"\bgo on\b", "continue"), (r"\bcut short\b", "truncated"),
    (r"\bgive(n|s)? up\b", "cancelled"), (r"\bin front of\b", "before"), (r"\bmeanwhile\b", "in the meantime"), (r"\bcompany\b", "a full batch"),
    (r"\bthat will do\b", "required"), (r"\bpassed over\b", "ignored"), (r"\bthat stands\b", "that is"), (r"\bnot there\b", "missing"),
    (r"\bthere is no\b", "no …"), (r"\bhas got\b", "has"), (r"\bgiven back\b", "freed"), (r"\bof another job\b", "belongs to"))
# Literals that say one of these in another sense: a part of each is enough.
ALLOWED = ("when there is no traceparent", "there is no such turn")
SENTENCE_MAX = 42  # words; a longer one is two, or a list
LITERAL = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])+\'|\\\n|\s+|.', re.S)
PATH = re.compile(r"(?<![\w/.{-])((?:src|include|docs|tests|tools|bench|deploy|python|examples|cmake|completions|lab)/[\w./-]+\w)")


def c_literals(text: str):
    """(line, text) of each string, those that follow each other joined; the files of #include are none."""
    begin, joined, line = 0, None, 1
    for match in LITERAL.finditer(re.sub(r"^#\s*include.*$", "", text, flags=re.M)):
        word = match[0]
        if word[0] == '"':
            begin, joined = (line, word[1:-1]) if joined is None else (begin, joined + word[1:-1])
        elif joined is not None and not word.isspace() and word != "\\\n" and not word.startswith("/*"):
            yield begin, joined
            joined = None
        line += word.count("\n")


def python_literals(text: str):
    tree = ast.parse(text)
    blocks = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, blocks) and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_messages_are_in_plain_english():
    wrong, seen = [], 0
    files = [(path, c_literals) for path in house.c_files("src", "python")]
    files += [(path, python_literals) for path in sorted((house.ROOT / "python/src").rglob("*.py"))]
    for path, literals in files:
        for line, said in literals(house.text(path)):
            seen += 1
            wrong += [f"{house.name(path)}:{line}: \"{said[:90]}\": {word}; say {better}" for word, better in DIALECT
                      if re.search(word, said, re.I) and not any(part in said for part in ALLOWED)]
    assert not wrong, "\n" + "\n".join(wrong)
    assert seen > 5000


def sentences(text: str):
    """(line, words) of each sentence of the prose of a page: paragraphs, list items and cells of tables; code is none."""
    parts, lines, begin = [], [], 1
    for number, line in enumerate(re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S).split("\n") + [""], 1):
        bare = line.strip()
        item = re.match(r"([-*]|\d+\.) ", bare)
        if lines and (not bare or item or bare[0] in "#|"):
            parts.append((begin, " ".join(lines)))
            lines = []
        if bare.startswith("|"):
            parts += [(number, cell) for cell in bare.strip("|").split(" | ")]
        elif bare and not bare.startswith("#") and (lines or item or not line.startswith("    ")):
            begin = begin if lines else number
            lines.append(bare)
    for number, part in parts:
        for said in re.split(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*\"'(0-9])", re.sub(r"`[^`]*`", "X", part)):
            yield number, len(said.split())


def test_sentences_are_read_once():
    long = {}
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            found = [(line, words) for line, words in sentences(house.text(page)) if words > SENTENCE_MAX]
            if found:
                long[house.name(page)] = found
    assert not long, f"page: (line, words) of sentences with more than {SENTENCE_MAX} words; make them two, or a list: {long}"


def test_paths_that_pages_name_exist():
    wrong = []
    for page in PAGES:
        for path in PATH.findall(house.text(page)) if page.name != "CHANGELOG.md" else ():
            pack = path.removeprefix("tests/golden/").replace("/", "-") + "*.tar"  # what packs.py unpacks
            if "NAME" not in path and not any((*house.ROOT.glob(path), *house.ROOT.glob(path + ".*"),
                                               *house.ROOT.glob("tests/golden/packs/" + pack))):
                wrong.append(f"{house.name(page)}: {path}")
    assert not wrong, "\n" + "\n".join(wrong)
