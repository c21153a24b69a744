"""A server's engine in a process of its own, talked to by pipes."""

import subprocess
import sys

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from _models import Decoder, generate, seeded
model = seeded(Decoder).eval()
for line in sys.stdin:
    print(len(generate(model, int(line))), flush=True)
"""
engine = subprocess.Popen(
    [sys.executable, "-c", CODE, sys.path[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
for tokens in (5, 7):
    engine.stdin.write(f"{tokens}\n")
    engine.stdin.flush()
    print(engine.stdout.readline().strip())
engine.stdin.close()
print(engine.wait())
