"""Compare what two checkouts answer: every view over many files, as JSON and as a table.

    python -m tests.bench.same_answers OLD_CHECKOUT [FILE_OR_FOLDER …] [--looks] [--limit SECONDS]

One child process a checkout answers all jobs; a job is one file, or two neighbours of one folder for the
views of several runs. Children send hashes, and texts only of the answers that differ. The exit code is 1
where any differs.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
LARGEST: Final = 60 << 20  # bytes of a file that is compared
LIMIT: Final = 120.0  # seconds that a job may take in either checkout
LOOKS: Final[tuple[dict[str, Any], ...]] = (
    {"group": "layer"},
    {"group": "op", "per": "token"},
    {"phase": "decode", "sort": "name"},
    {"filter": "a", "limit": 3},
)
VERBS: Final = (("diff", "json"), ("diff", "table"), ("diff", "md"), ("compare", "json"))


# The child: answers jobs with whatever checkout stands in PYTHONPATH.


def answer_jobs(looks: bool) -> None:
    """Read one job a line from stdin; write its hashes, or the text of one answer of the last job."""
    replies, texts = sys.stdout, dict[str, str]()
    sys.stdout = io.StringIO()  # what is printed by accident is no reply
    for line in sys.stdin:
        request = json.loads(line)
        if "text" in request:
            reply: object = texts.get(request["text"], "(no such answer)")
        else:
            texts = dict(_answers(request["files"], looks))
            reply = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _answers(files: Sequence[str], looks: bool) -> Iterator[tuple[str, str]]:
    """Every answer about these files: its name, and its text or the error that came instead."""
    try:
        from capture.load_runs import load_all
    except ImportError:  # an older layout
        from capture.loaders import load_all  # type: ignore[attr-defined, no-redef]
    from tracetui.look import Look

    try:
        runs = load_all(files, cache=False)
    except Exception as e:
        yield "open", _raised(e)
        return
    yield from _views(runs, Look(), "", several=len(files) > 1)
    for fields in LOOKS if looks else ():
        yield from _views(runs, Look(**fields), str(fields), several=len(files) > 1)
    for verb, format in VERBS if len(files) > 1 else ():
        yield f"tracetui {verb} as {format}", _verb([verb, *files, "--format", format, "--no-cache"])


def _views(runs: Sequence[Any], look: Any, words: str, *, several: bool) -> Iterator[tuple[str, str]]:
    """The views of several runs where there are several files, else those of one run for each run."""
    from tracetui.report_formats import format_report
    from tracetui.views import load_views

    for view in load_views():
        if (view.run_count > 1) != several and not (view.run_count > 1 and len(runs) > 1):
            continue
        for chosen in range(len(runs)) if view.run_count == 1 else (0,):
            for format in ("json", "table", "md") if view.name == "diff" else ("json", "table"):
                name = f"{view.name} as {format}, run {chosen + 1} {words}".rstrip()
                yield (
                    name,
                    _text(lambda v=view, f=format, c=chosen: format_report(v, runs, look, f, chosen=c)),
                )  # type: ignore[misc]


def _verb(argv: Sequence[str]) -> str:
    """What a command prints, and its exit code."""
    from tracetui.cli import main

    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code: object = main(argv)
        except SystemExit as e:
            code = e.code
    return f"exit {code}\n{out.getvalue()}{errors.getvalue()}"


def _text(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as e:
        return _raised(e)


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


# The parent: hands out jobs and compares.


class Child:
    """A process that answers with the code of one checkout."""

    def __init__(self, checkout: Path, looks: bool) -> None:
        self.checkout, self.looks = checkout, looks
        self.home = tempfile.TemporaryDirectory()
        self._start()

    def _start(self) -> None:
        private = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), self.home.name)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--answer", *(["--looks"] if self.looks else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.home.name,
            env={**os.environ, **private, "PYTHONPATH": str(self.checkout)},
        )

    def send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, limit: float) -> Any:
        """The reply; None where it does not come in time, after which a fresh process stands ready."""
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        self.stop()
        self._start()
        return None

    def text(self, name: str, limit: float) -> str:
        self.send({"text": name})
        return str(self.receive(limit))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def differences(old: Child, new: Child, job: Sequence[Path], limit: float) -> Iterator[str]:
    """One line an answer that differs; raise TimeoutError where a checkout takes too long."""
    for child in (old, new):
        child.send({"files": [str(path) for path in job]})
    before, after = old.receive(limit), new.receive(limit)
    if before is None or after is None:
        raise TimeoutError
    places = {str(child.checkout): "CHECKOUT" for child in (old, new)}
    places |= {child.home.name: "HOME" for child in (old, new)}
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) == after.get(name):
            continue
        texts = (neutral_text(child.text(name, limit), places) for child in (old, new))
        changed = first_change(*texts)
        if changed:
            yield f"{name}: {changed}"


def neutral_text(text: str, places: Mapping[str, str]) -> str:
    """Return a text with a word for each place that differs by nature, JSON with a line a value."""
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    for place, word in places.items():
        text = text.replace(place, word)
    return re.sub(r"crash-[\w.-]+", "crash", text)


def first_change(before: str, after: str) -> str:
    """The first line that differs, as it was and as it is; empty where none does."""
    lines = zip_longest(before.splitlines(), after.splitlines(), fillvalue="(nothing)")
    for number, (was, now) in enumerate(lines, 1):
        if was != now:
            return f"line {number}\n    was {was.strip()[:300]}\n    now {now.strip()[:300]}"
    return ""


def jobs(places: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """Every file that is not too large, then each two neighbours of one folder with one suffix."""
    files = sorted(
        path
        for place in places
        for path in (place.rglob("*") if place.is_dir() else [place])
        if path.is_file() and path.stat().st_size <= LARGEST
    )
    yield from ((path,) for path in files)
    alike = sorted(files, key=lambda path: (path.parent, path.suffix, path.name))
    for a, b in pairwise(alike):
        if a.parent == b.parent and a.suffix == b.suffix:
            yield a, b


def compare(checkout: Path, places: Sequence[Path], *, looks: bool, limit: float) -> int:
    """Print which answers differ; return how many."""
    old, new = Child(checkout, looks), Child(ROOT, looks)
    found = slow = 0
    try:
        work = list(jobs(places))
        for job in work:
            label = " + ".join(str(path) for path in job)
            try:
                for change in differences(old, new, job, limit):
                    found += 1
                    print(f"{label}\n  {change}", flush=True)
            except TimeoutError:
                slow += 1
                print(f"{label}\n  skipped: over {limit:g} s, or the process ended", flush=True)
    finally:
        old.stop()
        new.stop()
    print(f"{len(work)} jobs, {slow} skipped, {found} answers differ")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("same_answers", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", nargs="?", type=Path, help="the other checkout")
    parser.add_argument("places", nargs="*", type=Path, help="files and folders; else the fixtures")
    parser.add_argument("--looks", action="store_true", help="also grouped, filtered, sorted and per token")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="of a job")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.answer:
        answer_jobs(args.looks)
        return 0
    if args.old is None:
        parser.error("name the other checkout")
    places = [p.resolve() for p in args.places] or [ROOT / "tests" / "fixtures"]
    return 1 if compare(args.old.resolve(), places, looks=args.looks, limit=args.limit) else 0


if __name__ == "__main__":
    sys.exit(main())
