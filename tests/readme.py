"""Writes the parts of the README that are facts of the code: `python -m tests.readme`; a test checks."""

import ast
import contextlib
import io
import re
from pathlib import Path

from tracetui import cli

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ROOMS = ("capture", "engines", "tracetui", "tests")
UNLISTED = ("__init__.py", "__main__.py", "conftest.py")


def formats() -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(["formats", "--format", "md"])
    return out.getvalue().rstrip()


def tree() -> str:
    """Every module with the first line of its docstring; folders of many alike are told in one line."""
    lines = ["```"]
    for room in ROOMS:
        lines += _folder(ROOT / room, 0)
    return "\n".join([*lines, "```"])


def _folder(folder: Path, depth: int) -> list[str]:
    pad = "  " * depth
    if folder.name == "tests":
        return [f"{'tests/':30} fixtures, the rules of the house, mirrors of the rooms, bench/ (benchmarks)"]
    lines = [f"{pad + folder.name + '/':30} {_about(folder / '__init__.py')}".rstrip()]
    for file in sorted(folder.glob("*.py")):
        if file.name not in UNLISTED and not file.name.startswith("_"):
            lines.append(f"{pad + '  ' + file.name:30} {_about(file)}".rstrip())
    for sub in sorted(p for p in folder.iterdir() if (p / "__init__.py").exists()):
        lines += _folder(sub, depth + 1)
    return lines


def _about(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text())) if file.exists() else ""
    return (text or "").split("\n")[0].rstrip(".")


def written(text: str) -> str:
    """The README with its generated parts anew."""
    for name, made in (("formats", formats()), ("tree", tree())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda m, made=made: f"{m[1]}{made}\n{m[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
