import asyncio

import torch
from _models import Decoder, seeded

model = seeded(Decoder).eval()


async def request(number):
    for length in (4, *[1] * 6):
        with torch.no_grad():
            model(torch.ones(1, length, dtype=torch.long))
        await asyncio.sleep(0)
    return number


async def main():
    print(await asyncio.gather(*(request(n) for n in range(3))))


asyncio.run(main())
