"""Builds the compiled scanner beside its source: `python -m capture.loaders.chrome.scan.build`.

The hook of the build runs it too, before any dependency is there: standard library only.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("_events.c")
BUILT: Final = SOURCE.with_suffix(".abi3.so")
_OPTIONS: Final = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")
_ON_MAC: Final = ("-undefined", "dynamic_lookup")


class CannotBuildError(Exception):
    """Why the scanner cannot be built here, in words."""


def command(source: Path, built: Path) -> list[str]:
    """Return the command that compiles the scanner; raise CannotBuildError where there is none."""
    found = filter(None, map(shutil.which, ("cc", "gcc", "clang")))
    compiler = shlex.split(os.environ.get("CC", "")) or [next(found, "")]
    headers = Path(sysconfig.get_path("include"))
    if os.name != "posix":
        raise CannotBuildError("it is built on Linux and macOS only")
    if not compiler[0]:
        raise CannotBuildError("there is no C compiler")
    if not (headers / "Python.h").is_file():
        raise CannotBuildError(f"there are no headers of Python in {headers}")
    on_mac = _ON_MAC if sys.platform == "darwin" else ()
    return [*compiler, *_OPTIONS, *on_mac, f"-I{headers}", str(source), "-o", str(built)]


def build() -> str:
    """Compile the scanner; return why that was not possible, an empty text where it was."""
    new = BUILT.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(command(SOURCE, new), capture_output=True, text=True, check=False)
    except CannotBuildError as e:
        return str(e)
    except OSError as e:
        return f"the C compiler does not start: {e}"
    if done.returncode:
        return f"the C compiler refuses it: {done.stderr.strip()[:500]}"
    new.replace(BUILT)
    return ""


if __name__ == "__main__":
    reason = build()
    sys.exit(f"the compiled scanner is left out: {reason}" if reason else 0)
