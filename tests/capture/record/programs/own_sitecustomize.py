import os
import sys

from _models import Decoder, generate, seeded

import capture

print(os.environ["STARTED_BY"], capture.WORDS, sys.modules["sitecustomize"].__file__.rpartition("/")[2])
print(generate(seeded(Decoder).eval(), 9))
