"""Compile a C extension next to its source: `python -m capture.build_part SOURCE.c …`.

The build hook runs this before any dependency is installed: standard library only.
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
_MAC_OPTIONS: Final = ("-undefined", "dynamic_lookup")


class BuildError(Exception):
    """The reason why an extension cannot be compiled on this machine."""


def derive_output_path(source: Path) -> Path:
    """Return the path of the extension compiled from a source."""
    return source.with_suffix(".abi3.so")


def build_command(source: Path, output: Path) -> list[str]:
    """Return the command that compiles a source; raise BuildError if this machine cannot."""
    candidates = filter(None, map(shutil.which, ("cc", "gcc", "clang")))
    compiler = shlex.split(os.environ.get("CC", "")) or [next(candidates, "")]
    headers = Path(sysconfig.get_path("include"))
    if os.name != "posix":
        raise BuildError("extensions are built on Linux and macOS only")
    if not compiler[0]:
        raise BuildError("no C compiler found")
    if not (headers / "Python.h").is_file():
        raise BuildError(f"no Python headers in {headers}")
    platform_options = _MAC_OPTIONS if sys.platform == "darwin" else ()
    return [*compiler, *_OPTIONS, *platform_options, f"-I{headers}", str(source), "-o", str(output)]


def build(source: Path) -> str:
    """Compile a source; return the reason if that fails, else an empty text."""
    output = derive_output_path(source)
    draft = output.with_suffix(f".{os.getpid()}")
    try:
        result = subprocess.run(build_command(source, draft), capture_output=True, text=True, check=False)
    except BuildError as e:
        return str(e)
    except OSError as e:
        return f"the C compiler cannot be started: {e}"
    if result.returncode:
        return f"the C compiler failed: {result.stderr.strip()[:500]}"
    draft.replace(output)
    return ""


if __name__ == "__main__":
    reasons = [f"{name} is skipped: {reason}" for name in sys.argv[1:] if (reason := build(Path(name)))]
    sys.exit("\n".join(reasons) or 0)
