"""Ctrl+C within a layer, three times caught and once not: the calls that it ends are no steps."""

import signal

from _models import Decoder, generate, seeded


def interrupt(x):
    signal.raise_signal(signal.SIGINT)
    return mix(x)


signal.signal(signal.SIGINT, signal.default_int_handler)
model = seeded(Decoder).eval()
mix = model.layers[1].mix.forward
generate(model, 9)
for _ in range(3):
    model.layers[1].mix.forward = interrupt
    try:
        generate(model, 3)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    model.layers[1].mix.forward = mix
    generate(model, 9)
model.layers[1].mix.forward = interrupt
generate(model, 3)
