"""Two threads decode; then a fault of the machine ends the process."""

import ctypes
import os
import threading

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
threads = [threading.Thread(target=generate, args=(model, tokens)) for tokens in (20, 40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if not os.fork():  # a child that is killed, too
    generate(model, 12)
    os.abort()
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
ctypes.string_at(0)
