"""Decode several sequences at once with llama.cpp, as a server's slots: llama_slots.py MODEL SLOTS STEPS.

It prints the tokens that it decoded, and the seconds that this took.
"""

import sys
import time

import llama_cpp

PROMPT = 9


def main(path: str, slots: int, steps: int) -> None:
    llama_cpp.llama_backend_init()
    model_params, params = llama_cpp.llama_model_default_params(), llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch, params.n_seq_max = 512, 1, 1, slots
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_params)
    context = llama_cpp.llama_init_from_model(model, params)

    def decode(tokens: list[tuple[int, int]]) -> None:
        """Decode tokens, each a position and a sequence."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for at, (position, sequence) in enumerate(tokens):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = 300 + at, position, 1, 1
            batch.seq_id[at][0] = sequence
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_synchronize(context)
        llama_cpp.llama_batch_free(batch)

    for slot in range(slots):
        decode([(position, slot) for position in range(PROMPT)])
    start = time.perf_counter()
    for step in range(steps):
        decode([(PROMPT + step, slot) for slot in range(slots)])
    print(slots * steps, time.perf_counter() - start)
    llama_cpp.llama_free(context)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
