"""Builds a compiled part beside its source: `python -m capture.build_part SOURCE.c …`.

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

_OPTIONS: Final = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_ON_MAC: Final = ("-undefined", "dynamic_lookup")


class CannotBuildError(Exception):
    """Why a part cannot be built here, in words."""


def built_of(source: Path) -> Path:
    """Return where the compiled part of a source lies."""
    return source.with_suffix(".abi3.so")


def command(source: Path, built: Path) -> list[str]:
    """Return the command that compiles a source; raise CannotBuildError where there is none."""
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


def build(source: Path) -> str:
    """Compile a source; return why that was not possible, an empty text where it was."""
    built = built_of(source)
    new = built.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(command(source, new), capture_output=True, text=True, check=False)
    except CannotBuildError as e:
        return str(e)
    except OSError as e:
        return f"the C compiler does not start: {e}"
    if done.returncode:
        return f"the C compiler refuses it: {done.stderr.strip()[:500]}"
    new.replace(built)
    return ""


if __name__ == "__main__":
    reasons = [f"{name} is left out: {reason}" for name in sys.argv[1:] if (reason := build(Path(name)))]
    sys.exit("\n".join(reasons) or 0)
