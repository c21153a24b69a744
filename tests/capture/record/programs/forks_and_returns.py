"""Forks children after many steps; one ends by itself, so that the handlers of its parent run in it, too."""

import os
import sys

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
generate(model, 39)
for number in range(3):
    if not (child := os.fork()):
        generate(model, 9)
        if number:
            os._exit(number)
        sys.exit(7)
    generate(model, 9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
