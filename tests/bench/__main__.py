"""The board of every promised figure, beside its peer: `python -m tests.bench`, within 30 minutes.

    python -m tests.bench [NAME …] [--only FIGURES,…] [--minutes N]

With names, these benchmarks alone, as they are; each tells its own options. Exit 1 where a figure fails.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.bench import _board
from tests.bench._figures import BENCHES

HERE = Path(__file__).parent


def main() -> int:
    """Print the board, or run the benchmarks that are named; return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="modules of tests/bench, run as they are")
    parser.add_argument("--only", default="", help=f"figures of these alone: {', '.join(BENCHES)}")
    parser.add_argument("--minutes", type=float, default=_board.MINUTES, help="for all of them")
    args = parser.parse_args()
    if args.names:
        return _as_they_are(args.names)
    chosen = args.only.split(",") if args.only else list(BENCHES)
    if unknown := set(chosen).difference(BENCHES):
        parser.error(f"no figures of {', '.join(sorted(unknown))}")
    figures = _board.run(chosen, args.minutes)
    print(f"\n{_board.board(figures)}")
    return 1 if any(figure.verdict == "FAIL" for figure in figures) else 0


def _as_they_are(chosen: list[str]) -> int:
    names = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
    if unknown := set(chosen).difference(names):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    for name in chosen:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
