"""Write a small llama of random weights as GGUF: make_gguf.py FILE."""

import sys

import gguf
import numpy as np

VOCAB, WIDTH, LAYERS, HEADS, KV_HEADS, MLP = 1200, 256, 4, 4, 2, 512
BYTES = 256


def main(out: str) -> None:
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("tiny")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCAB)
    add_words(writer)
    add_weights(writer, np.random.default_rng(0))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_words(writer: gguf.GGUFWriter) -> None:
    """Add a vocabulary: three marks, all bytes, and words."""
    words = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(BYTES))]
    words += [f"▁w{n}".encode() for n in range(VOCAB - len(words))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3, *[6] * BYTES, *[1] * (VOCAB - BYTES - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def add_weights(writer: gguf.GGUFWriter, numbers: np.random.Generator) -> None:
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (kv, WIDTH), "attn_v": (kv, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_gate": (MLP, WIDTH), "ffn_up": (MLP, WIDTH),
        "ffn_down": (WIDTH, MLP),
    }  # fmt: skip
    matrices = {f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in shapes.items()}
    matrices |= {"token_embd": (VOCAB, WIDTH), "output": (VOCAB, WIDTH)}
    for name, shape in matrices.items():
        writer.add_tensor(f"{name}.weight", (numbers.standard_normal(shape) * 0.05).astype(np.float32))
    norms = [f"blk.{layer}.{name}_norm" for layer in range(LAYERS) for name in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))


if __name__ == "__main__":
    main(sys.argv[1])
