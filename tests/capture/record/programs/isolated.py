import subprocess
import sys

from _models import Decoder, generate, seeded

print(generate(seeded(Decoder).eval(), 5))
LOOP = """
import sys, torch
model = torch.nn.Linear(2, 2)
print([model(torch.ones(1, 2)).shape for _ in range(9)][0], sys.flags.isolated)
"""
print(subprocess.run([sys.executable, "-I", "-c", LOOP], check=True, capture_output=True, text=True).stdout)
