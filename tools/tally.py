# SPDX-License-Identifier: Apache-2.0
"""tally.py JUNIT.xml - print "passed failed skipped" of one JUnit report (ctest's or pytest's).

A report that cannot be read is one failure.
"""
import sys
import xml.etree.ElementTree as tree


def count(path: str) -> tuple[int, int, int]:
    passed = failed = skipped = 0
    for case in tree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        # ctest calls a test whose program is missing "skipped": it is a failure.
        missing = skip is not None and "Unable to find" in skip.get("message", "")
        if missing or case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    try:
        print(*count(sys.argv[1]))
    except (OSError, tree.ParseError) as problem:
        print(f"{sys.argv[1]}: {problem}", file=sys.stderr)
        print(0, 1, 0)
