"""Closes all files that it did not open, as daemons do, and opens its own under the same numbers."""

import os
from pathlib import Path

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
print(generate(model, 30))
with Path("first.txt").open("w") as file:
    print(file.fileno())
os.closerange(3, 1024)
files = [Path(f"own {number}.txt").open("w") for number in range(40)]  # noqa: SIM115
print(generate(model, 30), [file.fileno() for file in files])
for file in files:
    file.write("mine")
    file.close()
print({path.read_text() for path in Path().glob("own *.txt")})
