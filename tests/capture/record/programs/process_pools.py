import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from _models import Decoder, generate, seeded


def work(number):
    return sum(generate(seeded(Decoder).eval(), 8)) * 0 + number


if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            print(list(pool.map(work, range(4))))
