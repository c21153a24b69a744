import os
import sys

from _models import Decoder, generate, seeded

generate(seeded(Decoder).eval(), 10)
print("leaving")
sys.stdout.flush()
os._exit(7)
