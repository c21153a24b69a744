import os
import sys

from _models import Decoder, generate, seeded

generate(seeded(Decoder).eval(), 6)
if len(sys.argv) == 1:
    print("again", flush=True)
    os.execv(sys.executable, [sys.executable, __file__, "second"])
print("done")
