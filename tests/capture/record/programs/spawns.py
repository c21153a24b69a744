import multiprocessing

from _models import Decoder, generate, seeded


def work(queue):
    queue.put(len(generate(seeded(Decoder).eval(), 8)))


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=work, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    print([queue.get() for _ in children])
    for child in children:
        child.join()
    print([child.exitcode for child in children])
