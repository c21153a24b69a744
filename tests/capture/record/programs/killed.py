import os
import signal

from _models import Decoder, generate, seeded

print(generate(seeded(Decoder).eval(), 60), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
