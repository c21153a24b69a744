"""What is to be done at the end is known before torch is imported, and decodes."""

import atexit


def finish():
    print(generate(model, 20))


atexit.register(finish)

from _models import Decoder, generate, seeded  # noqa: E402

model = seeded(Decoder).eval()
print(generate(model, 9))
