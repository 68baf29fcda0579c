# SPDX-License-Identifier: Apache-2.0
"""test_listed_models.py - how many of the models that other programs' lists name open, counted from listed_models.toml.

What must never break: the tables of docs/models.md are these counts, and each form that counts as open is a folder whose vectors,
tokens or scores another test compares with the reference.

    python tests/golden/test_listed_models.py --write      the tables of docs/models.md anew
"""
import sys
import tomllib

import golden

TABLE = tomllib.loads((golden.HERE / "listed_models.toml").read_text(encoding="utf-8"))
FORMS, REFUSED, LISTS = TABLE["forms"], TABLE["refused"], TABLE["lists"]


def models(name: str) -> dict:
    """Form -> names."""
    return {form: names for form, names in LISTS[name].items() if form != "source"}


def tables() -> str:
    lines = ["| list | models | open | not decidable | percent |", "|---|---|---|---|---|"]
    left = {}
    for name in LISTS:
        total = sum(map(len, models(name).values()))
        opens = sum(len(names) for form, names in models(name).items() if form in FORMS)
        unknown = len(models(name).get("undecided", []))
        percent = f"{100 * opens / total:.0f}" + (f" ({100 * opens / (total - unknown):.0f} of those decided)" if unknown else "")
        lines.append(f"| {name}: {LISTS[name]['source']} | {total} | {opens} | {unknown} | {percent} |")
        for form, names in models(name).items():
            if form in REFUSED:
                left.setdefault(REFUSED[form], {})[name] = len(names)
    lines += ["", "| what is left | where |", "|---|---|"]
    for why, where in sorted(left.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        lines.append(f"| {why} | {', '.join(f'{name} {count}' for name, count in where.items())} |")
    return "\n".join(lines) + "\n"


def test_the_document_has_these_counts():
    golden.Generated("test_listed_models.py").check(tables())


def test_every_form_is_known_and_a_folder_of_the_tests():
    used = {form for name in LISTS for form in models(name)}
    assert used - {"undecided"} == set(FORMS) | set(REFUSED)
    for form, folder in FORMS.items():
        path = golden.HERE / folder
        assert path.is_file() or any((path / file).is_file() for file in ("config.json", "modules.json")), form


def test_no_list_names_a_model_twice():
    for name in LISTS:
        names = [model for group in models(name).values() for model in group]
        assert len(names) == len(set(names)), name


if __name__ == "__main__" and "--write" in sys.argv:
    golden.Generated("test_listed_models.py").write(tables())
