from _models import Decoder, generate, seeded

print(generate(seeded(Decoder).eval()))
