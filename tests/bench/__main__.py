"""Every benchmark in turn: `python -m tests.bench`; each also runs by itself and tells its options."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    names = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))
    for name in names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
