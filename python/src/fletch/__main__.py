# SPDX-License-Identifier: Apache-2.0
"""python -m fletch: the program `fletch`, which the wheel lays beside the interpreter."""
import os
import shutil
import subprocess
import sys
import sysconfig


def main() -> None:
    beside = os.path.join(sysconfig.get_path("scripts"), "fletch" + (sysconfig.get_config_var("EXE") or ""))
    program = beside if os.access(beside, os.X_OK) else shutil.which("fletch")
    if program is None:
        sys.exit("fletch: the program is missing from this package; pip install --force-reinstall fletch")
    if sys.platform == "win32":  # whose execv returns to the shell before the program ends
        sys.exit(subprocess.call([program, *sys.argv[1:]]))
    os.execv(program, ["fletch", *sys.argv[1:]])


if __name__ == "__main__":
    main()
