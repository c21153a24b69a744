"""A decoder in plain Python with a recursive function and a second thread: python plain_decode.py STEPS.

Print how often functions were called, as the program itself counts.
"""

import json
import math
import random
import sys
import threading
import time
from collections import Counter

WIDTH = 24
numbers, calls = random.Random(4), Counter()
WEIGHTS = [[[numbers.gauss(0, 0.1) for _ in range(WIDTH)] for _ in range(WIDTH)] for _ in range(4)]


def multiply(weight, x):
    calls["multiply"] += 1
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in weight]


def normalize(x):
    calls["normalize"] += 1
    scale = math.sqrt(sum(v * v for v in x) / len(x) + 1e-6)
    return [v / scale for v in x]


def split(text):
    calls["split"] += 1
    if len(text) <= 2:
        return [text]
    middle = len(text) // 2
    return split(text[:middle]) + split(text[middle:])


def attend(weight, x, cache):
    calls["attend"] += 1
    q = multiply(weight, x)
    cache.append(q)
    scores = [math.exp(sum(a * b for a, b in zip(q, k, strict=True))) for k in cache]
    total = sum(scores)
    return [sum(p * k[i] for p, k in zip(scores, cache, strict=True)) / total for i in range(WIDTH)]


def decode(x, caches):
    calls["decode"] += 1
    for weight, cache in zip(WEIGHTS, caches, strict=True):
        x = [a + b for a, b in zip(x, attend(weight, normalize(x), cache), strict=True)]
        x = [a + b for a, b in zip(x, multiply(weight, normalize(x)), strict=True)]
    return x


def split_beside():
    for _ in range(3):
        split("a second thread of the program")
        time.sleep(0.002)


def main(steps):
    beside = threading.Thread(target=split_beside)
    beside.start()
    beside.join()
    split("the quick brown fox jumps over the lazy dog" * 2)
    caches, x = [[] for _ in WEIGHTS], [1.0] * WIDTH
    for _ in range(steps):
        x = decode(x, caches)
    print(json.dumps(calls))


if __name__ == "__main__":
    main(int(sys.argv[1]))
