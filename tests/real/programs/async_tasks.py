"""Three tasks of asyncio in turn, each of which computes and waits."""

import asyncio
import time


def compute(n):
    end = time.perf_counter() + 0.002 * n
    while time.perf_counter() < end:
        sum(range(2000))


async def work(n):
    for _ in range(3):
        await asyncio.sleep(0.004)
        compute(n)


async def main():
    tasks = [asyncio.create_task(work(n)) for n in (1, 2, 3)]
    tasks[0].set_name("first")
    await asyncio.gather(*tasks)


asyncio.run(main())
