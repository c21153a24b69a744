"""Every benchmark in turn, or those named: `python -m tests.bench [NAME …]`; each alone tells its options."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    names = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
    if unknown := set(sys.argv[1:]).difference(names):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    for name in sys.argv[1:] or names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
