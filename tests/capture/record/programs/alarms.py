import signal

from _models import Decoder, generate, seeded

rings = []
signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
out = generate(seeded(Decoder).eval(), 200)
signal.setitimer(signal.ITIMER_REAL, 0)
print(out, set(rings))
