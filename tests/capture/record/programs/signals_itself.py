import os
import signal

from _models import Decoder, generate, seeded

signal.signal(signal.SIGTERM, lambda *_: print("heard"))
generate(seeded(Decoder).eval(), 5)
os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("going", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
