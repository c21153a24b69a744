"""What recording costs a program: nanoseconds and bytes an event, beside what one might write by hand.

python -m tests.bench.emit
"""

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from capture.native.emit import Emitter, now
from tracetui import Recorder

KERNELS = 290
ROUNDS = 300


def best(work: Callable[[], object]) -> float:
    """Nanoseconds an event, the best of many rounds."""
    took = []
    for _ in range(ROUNDS):
        began = now()
        work()
        took.append(now() - began)
    return min(took) / KERNELS


def main() -> None:
    starts = [10**15 + 40_000 * i for i in range(KERNELS)]
    durations = [1_000 + 97 * i for i in range(KERNELS)]
    sink = io.StringIO()

    def by_hand() -> None:
        for i in range(KERNELS):
            sink.write(json.dumps({"name": f"op {i}", "t": starts[i], "dur": durations[i]}) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        emitter = Emitter(path)
        emitter.run("bench")
        before = path.stat().st_size
        ops = range(KERNELS)
        columns = best(lambda: emitter.columns(ops, starts, durations, step=1, phase="decode", context=9))
        emitter.flush()
        size = (path.stat().st_size - before) / ROUNDS / KERNELS
        recorder = Recorder(Path(folder) / "rec.jsonl")
        spans = [recorder.span("attention", layer=i) for i in range(KERNELS)]
        inside, outside = [], []
        for _ in range(ROUNDS):
            step = recorder.step(context=1)
            step.__enter__()
            began = now()
            for span in spans:
                with span:
                    pass
            middle = now()
            step.__exit__()
            inside.append(middle - began)
            outside.append(now() - middle)
        looked_up = best(lambda: [recorder.span("attention", layer=i).__enter__() for i in range(KERNELS)])
        rows = {
            "Emitter.columns, an event": columns,
            "a span that is kept": min(inside) / KERNELS,
            "  and its share of the end of the step": min(outside) / KERNELS,
            "looking a span up by name and layer, and entering it": looked_up,
            "peer: json.dumps of an event, buffered": best(by_hand),
        }
        for what, ns in rows.items():
            print(f"{what:55} {ns:7.0f} ns {rows['Emitter.columns, an event'] / ns:6.2f}×")
        print(f"{'bytes an event in the file':55} {size:7.1f}")


if __name__ == "__main__":
    main()
