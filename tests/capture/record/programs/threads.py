from concurrent.futures import ThreadPoolExecutor

from _models import Decoder, generate, seeded

model = seeded(Decoder).eval()
with ThreadPoolExecutor(4) as pool:
    print(set(map(tuple, pool.map(lambda _: generate(model, 10), range(8)))).__len__())
