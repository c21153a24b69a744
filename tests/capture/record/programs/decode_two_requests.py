import time

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
print(generate(model, 15))
time.sleep(0.3)
print(generate(model, 15))
