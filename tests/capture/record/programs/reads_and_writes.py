import sys
from pathlib import Path

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
for line in sys.stdin:
    print(line.strip(), generate(model, 5))
print("to the side", file=sys.stderr)
Path("answer.txt").write_text("42")
