"""What holds for every compiled part, by its source."""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import capture
from capture.build_part import BuildError, build_command

ROOT = Path(capture.__file__).parent.parent
FOLDERS = ("capture/loaders/_scan", "engines/processor")
SOURCES = ("capture/loaders/_scan/_events.c", "engines/processor/_processor.c")
FORMAT = re.compile(r'(?:PyArg_Parse\w*|Py_BuildValue)\([^;"]*"(?P<format>[^"]*)"')
HEADERS = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.h"))]


def test_a_part_built_on_a_later_python_runs_on_an_earlier_one() -> None:
    """With the headers of 3.13, `#` in a format makes a part that 3.12 refuses: they leave out its macro."""
    sources = [path.read_text() for folder in FOLDERS for path in (ROOT / folder).glob("*.[ch]")]
    formats = [actual["format"] for text in sources for actual in FORMAT.finditer(text)]
    assert len(formats) > 3
    assert [text for text in formats if "#" in text] == []


@pytest.mark.corpus
@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_header_alone_compiles(header: Path) -> None:
    if header.parent.name == "processor" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the products are written for x86")
    try:
        command = build_command(header, Path(os.devnull))
    except BuildError as reason:
        pytest.skip(str(reason))
    at = command.index(str(header))
    command[at:at] = ["-fsyntax-only", "-Werror=implicit-function-declaration", "-x", "c"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("source", SOURCES)
def test_part_compiles_without_warnings(
    source: str, compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not (words := find_compiler(compiler)):
        pytest.skip(f"there is no {compiler} here")
    if "processor" in source and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the products are written for x86")
    monkeypatch.setenv("CC", shlex.join(words))
    monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "cache"))  # a second compilation says no warning
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "cache"))
    try:
        command = build_command(ROOT / source, tmp_path / "part.so")
    except BuildError as reason:
        pytest.skip(str(reason))
    strict = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    result = subprocess.run([*command, *strict], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "part.so").stat().st_size > 50_000


def find_compiler(name: str) -> list[str]:
    """Find the words that start a compiler, clang also from the package ziglang; empty without it."""
    if shutil.which(name):
        return [name]
    is_clang_of_zig = name == "clang" and importlib.util.find_spec("ziglang")
    return [sys.executable, "-m", "ziglang", "cc"] if is_clang_of_zig else []


@pytest.mark.parametrize(
    ("source", "loader"),
    [
        ("capture/loaders/_scan/_events.c", "capture/loaders/_scan/__init__.py"),
        ("engines/processor/_processor.c", "engines/processor/__init__.py"),
    ],
)
def test_the_version_that_is_asked_for_is_that_of_the_source(source: str, loader: str) -> None:
    """With another one a part that was just built would be refused, and the slower readers used."""
    found = re.findall(r"^#define VERSION (\d+)$", (ROOT / source).read_text(), re.MULTILINE)
    wanted = re.findall(r"= Extension\(\S+, (\d+),", (ROOT / loader).read_text())
    assert found == wanted and len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("tests.capture.loaders.sanitized_scan", "--cases", "3000"),
        ("tests.engines.sanitized_processor", "-k", "apart or overflow or number or beyond or fit"),
    ],
    ids=["scanner", "products"],
)
def test_sanitized_part_has_no_fault(words: tuple[str, ...]) -> None:
    """Reads and writes beyond a buffer, and what C leaves undefined, end the program."""
    if shutil.which("gcc") is None or not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        pytest.skip("needs gcc and the headers of Python")
    if "processor" in words[0] and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the products are written for x86")
    command = [sys.executable, "-m", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
