"""What being recorded costs a program: its loop alone and recorded, in turn, by its own clocks.

    python -m tests.bench.recorded [NAME…] [--rounds 5] [--steps 400] [--backend inductor]

CPU time is that of the program's own process, which others change little; a ratio of wall times needs a quiet
machine. Of compiled programs the graphs are counted as well.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tracetui.process import recorded_environment

PROGRAM = """
import json, sys, time, torch
from torch import nn

name, steps, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
torch.set_num_threads(1)
WIDTH = 512

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.mlp(torch.relu(self.mix(self.norm(x))))

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(100, WIDTH), nn.Linear(WIDTH, 100)
        self.layers = nn.ModuleList(Block() for _ in range(8))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

model = Decoder()
call = torch.compile(model, fullgraph=True, backend=backend) if name == "compiled" else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def step():
    if name == "train":
        call(torch.ones(4, 8, dtype=torch.long)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    else:
        with torch.no_grad():
            call(torch.ones(1, 1, dtype=torch.long)).argmax(-1).item()

for _ in range(10):
    step()
cpu, wall = time.process_time(), time.perf_counter()
for _ in range(steps):
    step()
told = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
if name == "compiled":
    counters = torch._dynamo.utils.counters
    told["graphs"] = [dict(counters["stats"]), dict(counters["graph_break"])]
print(json.dumps(told))
"""
NAMES = ("decode", "train", "compiled")


def once(name: str, args: argparse.Namespace, out: Path | None) -> dict[str, Any]:
    """Return what the program tells of one run, recorded into a file where one is named."""
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("TRACETUI")}
    added = {k: v for k, v in recorded_environment(out).items() if k.startswith("TRACETUI")} if out else {}
    if out is not None:
        added["PYTHONPATH"] = recorded_environment(out)["PYTHONPATH"].partition(os.pathsep)[0]
    command = [sys.executable, "-c", PROGRAM, name, str(args.steps), args.backend]
    done = subprocess.run(command, env={**plain, **added}, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    args = parser.parse_args()
    for name in args.names:
        ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
        alone: list[dict[str, Any]] = []
        same = True
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as folder:
                alone.append(once(name, args, None))
                recorded = once(name, args, Path(folder) / "prof.jsonl")
            for clock, found in ratios.items():
                found.append(recorded[clock] / alone[-1][clock])
            same = same and recorded.get("graphs") == alone[-1].get("graphs")
        per = 1e3 * median(told["cpu"] for told in alone) / args.steps
        words = "" if name != "compiled" else f", graphs {'the same' if same else 'DIFFERENT'}"
        figures = [f"{clock} {median(r):.3f}x [{min(r):.3f}-{max(r):.3f}]" for clock, r in ratios.items()]
        print(f"{name:10} {per:6.2f} ms of CPU a step alone; {', '.join(figures)}{words}", flush=True)


if __name__ == "__main__":
    main()
