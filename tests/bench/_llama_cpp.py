"""llama.cpp as a peer: run by an interpreter that has llama-cpp-python and gguf, never by ours.

    INTERPRETER tests/bench/_llama_cpp.py MODEL TYPE THREADS CLOCK < counts

MODEL is a model's shape as JSON, TYPE is F16, Q8_0 or Q4_0, CLOCK is wall or processor. A file
of random weights is written, loaded and removed; then every line of stdin, a number, is answered by the
seconds of so many decode steps.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType as Type

BLOCK = 1 << 22  # weights that are drawn and quantised once, then tiled
STD = 0.02
ROOM = 256
PROMPT = 16
LAPS = 128  # steps until the context is cut back to the prompt

ARCHITECTURES = {"gemma3_text": "gemma3", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
Tensor = tuple[str, tuple[int, ...], Type]


def main() -> int:
    shape, kind, threads = json.loads(sys.argv[1]), Type[sys.argv[2]], int(sys.argv[3])
    clock = time.process_time if sys.argv[4] == "processor" else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        size = write(path, shape, kind)
        decoder = Decoder(path, threads, clock)
    print(json.dumps({"bytes": size, "version": llama_cpp.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps([decoder.step() for _ in range(int(line))]), flush=True)
    return 0


class Decoder:
    """A loaded model, a token at a time around the same positions; the likeliest is taken next."""

    def __init__(self, path: Path, threads: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(quiet, None)
        self._quiet = quiet  # kept alive for as long as it may be called
        model = llama_cpp.llama_model_default_params()
        model.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE  # read, not mapped: the file goes at once
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), model)
        if not self._model:
            raise SystemExit(f"llama.cpp does not load {path.name}")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_threads, context.n_threads_batch = ROOM, threads, threads
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._at = 0
        self._take(list(range(PROMPT)))

    def step(self) -> float:
        began = self._clock()
        if self._at == PROMPT + LAPS:
            memory = llama_cpp.llama_get_memory(self._context)
            llama_cpp.llama_memory_seq_rm(memory, 0, PROMPT, -1)
            self._at = PROMPT
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        self._take([int(np.ctypeslib.as_array(logits, (self._vocab,)).argmax())])
        return self._clock() - began

    def _take(self, ids: list[int]) -> None:
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        batch = llama_cpp.llama_batch_get_one(tokens, len(ids))
        if llama_cpp.llama_decode(self._context, batch):
            raise SystemExit("llama.cpp does not decode")
        self._at += len(ids)


def write(path: Path, shape: dict[str, Any], kind: Type) -> int:
    """The file of a model with random weights; its bytes that every token reads."""
    architecture = ARCHITECTURES[shape["family"]]
    writer = gguf.GGUFWriter(path, architecture)
    describe(writer, shape)
    listed = list(tensors(shape, kind))
    for name, dims, type_ in listed:
        stored = gguf.quant_shape_to_byte_shape(dims, type_) if type_ in QUANTISED else dims
        writer.add_tensor_info(name, stored, np.dtype(DTYPES[type_]), nbytes(dims, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    drawn = {type_: block(type_) for type_ in {type_ for _, _, type_ in listed}}
    for number, (name, dims, type_) in enumerate(listed):
        if name.endswith("norm.weight"):
            writer.write_tensor_data(np.ones(dims, np.float32))
        else:
            writer.write_tensor_data(tiled(drawn[type_], number, nbytes(dims, type_)))
    writer.close()
    return sum(nbytes(dims, type_) for _, dims, type_ in listed)


QUANTISED = (Type.Q8_0, Type.Q4_0)
DTYPES = {Type.F32: np.float32, Type.F16: np.float16, Type.Q8_0: np.uint8, Type.Q4_0: np.uint8}


def describe(writer: gguf.GGUFWriter, shape: dict[str, Any]) -> None:
    writer.add_context_length(shape["max_context"])
    writer.add_embedding_length(shape["hidden"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ffn"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_layer_norm_rms_eps(shape["eps"])
    writer.add_rope_freq_base(shape["theta"])
    writer.add_vocab_size(shape["vocab"])
    if shape["window"]:
        writer.add_sliding_window(shape["window"])
    writer.add_tokenizer_model("none")


def tensors(shape: dict[str, Any], kind: Type) -> Iterator[Tensor]:
    """Names and shapes as the architecture calls them; the head is the embedding table."""
    hidden, ffn, dim = shape["hidden"], shape["ffn"], shape["head_dim"]
    q, kv = shape["heads"] * dim, shape["kv_heads"] * dim
    yield "token_embd.weight", (shape["vocab"], hidden), kind
    yield "output_norm.weight", (hidden,), Type.F32
    for layer in range(shape["layers"]):
        here = f"blk.{layer}."
        for name, n in (("q", q), ("k", kv), ("v", kv)):
            yield f"{here}attn_{name}.weight", (n, hidden), kind
            if shape["qkv_bias"]:
                yield f"{here}attn_{name}.bias", (n,), Type.F32
        yield f"{here}attn_output.weight", (hidden, q), kind
        for name, dims in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
            yield f"{here}ffn_{name}.weight", dims, kind
        for name, n in norms(shape):
            yield f"{here}{name}.weight", (n,), Type.F32


def norms(shape: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield "attn_norm", shape["hidden"]
    yield "ffn_norm", shape["hidden"]
    if shape["qk_norm"]:
        yield "attn_q_norm", shape["head_dim"]
        yield "attn_k_norm", shape["head_dim"]
    if shape["sandwich"]:
        yield "post_attention_norm", shape["hidden"]
        yield "post_ffw_norm", shape["hidden"]


def nbytes(dims: tuple[int, ...], type_: Type) -> int:
    per_block, size = gguf.GGML_QUANT_SIZES[type_]
    return int(np.prod(dims)) // per_block * size


def block(type_: Type) -> np.ndarray:
    """Random weights in a type, as bytes."""
    drawn = np.random.default_rng(0).normal(0.0, STD, BLOCK).astype(np.float32)
    return gguf.quantize(drawn, type_).view(np.uint8).reshape(-1)


def tiled(drawn: np.ndarray, number: int, size: int) -> np.ndarray:
    """So many bytes of the block over and over, each tensor from a place of its own."""
    start = number * 4096 * 18 * 34 % len(drawn)  # whole blocks of every type
    return np.resize(np.roll(drawn, -start), size)


if __name__ == "__main__":
    sys.exit(main())
