"""Two models of two sizes write in turn; one call is no step: that with which the smaller one comes back."""

from _models import Decoder, generate, seeded

small, large = seeded(Decoder).eval(), seeded(Decoder, layers=4).eval()
for prompt in (5, 6, 7, 8):
    print(generate(small, 20, prompt=prompt), generate(large, 20, prompt=prompt))
