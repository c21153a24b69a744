"""GGUF files: what their blocks mean, how they decode, and what is refused of them."""

import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capture.errors import EngineError
from engines.decoder import Decoder
from engines.models.spec import RopeScaling, list_tensors
from engines.weights import matrix_storage, weight_sources
from engines.weights.gguf.block_unpacking import UNPACKERS, unpack_blocks
from engines.weights.gguf.gguf_model import read_gguf_model
from engines.weights.gguf.gguf_source import GgufSource
from engines.weights.low_bit import QUANT_FORMATS
from engines.weights.quantised_storage import QuantisedStorage
from tests.engines import gguf_files as files
from tests.engines import plain, tiny
from tests.engines.test_decoder import relative
from tests.engines.test_engine import main, of_kind, recorded

CPU = torch.device("cpu")
FAMILIES = {name: tiny.SPECS[name] for name in ("gemma3", "llama", "qwen2", "qwen3")}
FAMILIES["llama"] = replace(FAMILIES["llama"], scaling=None)
FAMILIES["llama-untied"] = replace(FAMILIES["llama"], tied=False)
# wide enough for blocks of 256
WIDE = replace(
    FAMILIES["qwen3"], vocab=256, hidden=256, layers=2, head_dim=64, ffn=512, name="wide", max_context=512
)


@pytest.mark.parametrize("kind", sorted(UNPACKERS))
def test_blocks_mean_what_ggml_says(kind: str) -> None:
    """Number by number, to the last bit."""
    _, _, size = files.SIZES[kind]
    raw = files.random_blocks(kind, 3, 512)
    rows = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(3, -1)
    assert torch.equal(unpack_blocks(rows, kind, size), files.meaning(kind, raw, 3, 512))


def test_the_package_gguf_agrees() -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    for kind in UNPACKERS:
        raw = torch.frombuffer(bytearray(files.random_blocks(kind, 3, 512)), dtype=torch.uint8).view(3, -1)
        wanted = gguf.quants.dequantize(raw.numpy(), gguf.GGMLQuantizationType[kind])
        assert torch.equal(unpack_blocks(raw, kind, files.SIZES[kind][2]), torch.from_numpy(wanted))


@pytest.mark.corpus
@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_decodes_as_its_checkpoint(family: str, tmp_path: Path) -> None:
    """The permuted rows of Llama, Gemma's norms and windows, Qwen's biases: as the plain model computes."""
    spec = FAMILIES[family]
    table = tiny.weights(spec)
    path = files.write(tmp_path / "tiny.gguf", spec, files.converted(spec, table))
    choice = weight_sources.choose_model(str(path), "auto")
    ids = torch.randint(0, spec.vocab, (1, 20), generator=torch.Generator().manual_seed(1))
    model = Decoder(choice.spec, weight_sources.open_source(choice, 0), matrix_storage.FP32, CPU, capacity=64)
    wanted = plain.forward(spec, table, ids[0].tolist())[11:]
    assert relative(tiny.logits(model, ids, prefill=12)[0], wanted) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_come_back_as_checkpoints_have_them(family: str, tmp_path: Path) -> None:
    spec = FAMILIES[family]
    table = {n: t.bfloat16().float() if t.dim() == 2 else t for n, t in tiny.weights(spec).items()}
    path = files.write(tmp_path / "tiny.gguf", spec, files.converted(spec, table, "BF16"))
    source = GgufSource(read_gguf_model(path), torch.float16)
    norms = 1.0 if spec.unit_offset else 0.0
    for name in list_tensors(spec):
        wanted = table[name] + norms if name.endswith("norm.weight") else table[name]
        assert torch.equal(source.read(name).float(), wanted), name


def blocks_of(kinds: dict[str, str]) -> tuple[dict[str, files.Stored], dict[str, torch.Tensor]]:
    """A wide model in blocks of the kinds that a part of each name chooses, and what it stands for."""
    table = {n: t for n, t in tiny.weights(WIDE).items() if t.dim() == 1}
    stored = {}
    for name, shape in list_tensors(WIDE).items():
        if len(shape) == 1:
            stored[files.name_of(WIDE, name)] = files.plain(table[name], "F32")
            continue
        kind = next(kind for part, kind in kinds.items() if part in name)
        raw = files.random_blocks(kind, *shape, seed=len(stored))
        stored[files.name_of(WIDE, name)] = (kind, shape, raw)
        table[name] = files.meaning(kind, raw, *shape)
    return stored, table


@pytest.mark.slow
def test_a_mixture_decodes_as_its_blocks_mean(tmp_path: Path) -> None:
    """Q4_K_M as llama.cpp mixes it: most in Q4_K, values and down in Q6_K, the head too."""
    stored, table = blocks_of({"v_proj": "Q6_K", "down": "Q6_K", "lm_head": "Q6_K", "": "Q4_K"})
    path = files.write(tmp_path / "mixed.gguf", WIDE, stored, **{"general.file_type": 15})
    choice = weight_sources.choose_model(str(path), "auto")
    source = weight_sources.open_source(choice, 0, torch.float32)
    model = Decoder(choice.spec, source, matrix_storage.FP32, CPU, capacity=64)
    ids = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(2))
    wanted = plain.forward(WIDE, table, ids[0].tolist())[7:]
    assert relative(tiny.logits(model, ids, prefill=8)[0], wanted) < 1e-5
    assert choice.gguf and choice.gguf.stored_as == "Q4_K_M"


@pytest.mark.slow
def test_eight_bits_are_taken_as_they_are(tmp_path: Path) -> None:
    """Codes and scales are the file's, not packed again: its blocks need not use all of their range."""
    stored, table = blocks_of({"": "Q8_0"})
    path = files.write(tmp_path / "q8.gguf", WIDE, stored)
    choice = weight_sources.choose_model(str(path), "auto")
    source = weight_sources.open_source(choice, 0, torch.float16)
    name = "model.layers.1.mlp.down_proj.weight"
    packed = source.read_packed(name)
    assert packed and torch.equal(packed.unpack(), table[name])
    way = QuantisedStorage(QUANT_FORMATS["q8_0"], CPU)
    model = Decoder(choice.spec, source, way, CPU, capacity=64)
    ids = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(2))
    wanted = plain.forward(WIDE, table, ids[0].tolist())[7:]
    assert relative(tiny.logits(model, ids, prefill=8)[0], wanted) < 0.1
    assert way.error == 0


LLAMA_CPP = """
import sys, numpy as np, llama_cpp
path, ids = sys.argv[1], [int(i) for i in sys.argv[2].split()]
model = llama_cpp.Llama(path, n_ctx=64, logits_all=True, verbose=False, n_threads=1)
model.eval(ids)
np.save(sys.argv[3], np.array(model.scores[: len(ids)]))
"""


@pytest.mark.parametrize("family", ["gemma3", "llama", "qwen2", "qwen3", "mixture"])
def test_llama_cpp_computes_the_same(family: str, tmp_path: Path) -> None:
    """The product's reading of a file against that of the program which files are written for."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    spec = FAMILIES.get(family, WIDE)
    stored = files.converted(spec, tiny.weights(spec))
    if family == "mixture":
        stored, _ = blocks_of({"v_proj": "Q6_K", "down": "Q5_K", "o_proj": "Q3_K", "up": "Q5_0", "": "Q4_K"})
    path = files.write(tmp_path / "a.gguf", spec, stored, **files.vocabulary(spec.vocab))
    ids = torch.randint(3, spec.vocab, (1, 20), generator=torch.Generator().manual_seed(1))
    command = [
        sys.executable,
        "-c",
        LLAMA_CPP,
        str(path),
        " ".join(map(str, ids[0].tolist())),
        str(tmp_path / "a"),
    ]
    subprocess.run(command, check=True, timeout=100)
    choice = weight_sources.choose_model(str(path), "auto")
    source = weight_sources.open_source(choice, 0, torch.float32)
    model = Decoder(choice.spec, source, matrix_storage.FP32, CPU, capacity=64)
    wanted = torch.from_numpy(np.load(tmp_path / "a.npy"))[11:]
    # its products take their rows in 8 bits where the matrix is in blocks, else in 32
    tolerance = 0.05 if family == "mixture" else 2e-3
    assert relative(tiny.logits(model, ids, prefill=12)[0], wanted) < tolerance


def test_frequencies_are_divided_by_what_the_file_states(tmp_path: Path) -> None:
    spec = FAMILIES["llama"]
    factors = tuple(1.0 + 0.5 * i for i in range(spec.head_dim // 2))
    table = tiny.weights(spec)
    stored = files.converted(spec, table) | {"rope_freqs.weight": files.plain(torch.tensor(factors), "F32")}
    choice = weight_sources.choose_model(str(files.write(tmp_path / "a.gguf", spec, stored)), "auto")
    assert choice.spec.scaling == RopeScaling("stated", 1.0, factors=factors)
    ids = torch.randint(0, spec.vocab, (1, 20), generator=torch.Generator().manual_seed(1))
    model = Decoder(choice.spec, weight_sources.open_source(choice, 0), matrix_storage.FP32, CPU, capacity=64)
    wanted = plain.forward(choice.spec, table, ids[0].tolist())[11:]
    assert relative(tiny.logits(model, ids, prefill=12)[0], wanted) < 1e-5


@pytest.mark.parametrize(("version", "alignment"), [(2, 32), (3, 32), (3, 64)])
def test_versions_and_alignments(version: int, alignment: int, tmp_path: Path) -> None:
    spec, table = FAMILIES["qwen2"], tiny.weights(FAMILIES["qwen2"])
    path = tmp_path / "a.gguf"
    path.write_bytes(files.document(files.fields_of(spec), files.converted(spec, table), version, alignment))
    source = GgufSource(read_gguf_model(path), torch.float16)
    assert all(torch.equal(source.read(n), table[n]) for n in list_tensors(spec))


@pytest.mark.slow
def test_what_is_decoded_stands_in_the_recording(tmp_path: Path) -> None:
    stored, _ = blocks_of({"": "Q4_K"})
    path = files.write(tmp_path / "wide.gguf", WIDE, stored, **{"general.file_type": 14})
    out = tmp_path / "a.jsonl"
    assert (
        main(["--model", str(path), "--out", str(out), "--steps", "3", "--device", "cpu", "--dtype", "bf16"])
        == 0
    )
    lines = recorded(out)
    meta = {k: v for line in of_kind(lines, "run") for k, v in line["meta"].items()}
    assert (meta["weights"], meta["stored_as"], meta["quant"]) == (str(path), "Q4_K_S", "q0f16")
    notes = [line["name"] for line in of_kind(lines, "mark", path="note")]
    assert any("Q4_K_S is unpacked" in note and "bf16" in note for note in notes)
    out8 = tmp_path / "b.jsonl"
    stored, _ = blocks_of({"": "Q8_0"})
    path = files.write(tmp_path / "q8.gguf", WIDE, stored)
    assert main(["--model", str(path), "--out", str(out8), "--steps", "3", "--device", "cpu"]) == 0
    meta = {k: v for line in of_kind(recorded(out8), "run") for k, v in line["meta"].items()}
    assert (meta["quant"], meta["packing_why"], meta["quant_error"]) == ("q8_0", "as stored in the file", 0)


def refused(path: Path) -> str:
    with pytest.raises(EngineError) as found:
        weight_sources.open_source(weight_sources.choose_model(str(path), "auto"), 0)
    said = str(found.value)
    assert found.value.exit_code == 5 and "\n" not in said and len(said) < 600
    return said


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("general.architecture", "mamba", "architecture mamba is not supported; supported: gemma3, llama"),
        ("qwen2.expert_count", 8, "expert_count"),
        ("qwen2.final_logit_softcapping", 30.0, "final_logit_softcapping"),
        ("qwen2.rope.scaling.type", "yarn", "rope scaling yarn"),
        ("qwen2.attention.value_length", 24, "values and keys of different widths"),
        ("qwen2.rope.dimension_count", 6, "partial rotation"),
        ("qwen2.attention.head_count", [4, 4], "missing or invalid field"),
        ("qwen2.block_count", 1 << 31, "layers"),
        ("qwen2.embedding_length", 0, "hidden"),
        ("split.count", 3, "one of 3 parts of a model; join them"),
    ],
)  # fmt: skip
def test_what_is_not_decoded_is_refused_by_name(field: str, value: Any, said: str, tmp_path: Path) -> None:
    spec = FAMILIES["qwen2"]
    stored = files.converted(spec, tiny.weights(spec))
    assert said in refused(files.write(tmp_path / "a.gguf", spec, stored, **{field: value}))


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    spec = FAMILIES["qwen2"]
    whole = files.converted(spec, tiny.weights(spec))
    extra = whole | {"blk.0.attn_output.bias": files.plain(torch.ones(48), "F32")}
    assert "blk.0.attn_output.bias" in refused(files.write(tmp_path / "a.gguf", spec, extra))
    less = {n: t for n, t in whole.items() if n != "blk.6.ffn_up.weight"}
    assert "tensor blk.6.ffn_up.weight is missing" in refused(files.write(tmp_path / "b.gguf", spec, less))
    other = whole | {"blk.0.ffn_up.weight": files.plain(torch.ones(48, 80), "F32")}
    assert "has shape [48, 80], its metadata requires [80, 48]" in refused(
        files.write(tmp_path / "c.gguf", spec, other)
    )


def head_of(raw: bytes) -> int:
    """Where the tensors begin."""
    return raw.index(b"token_embd.weight")


def cut(raw: bytes) -> bytes:
    return raw[:-200]


def many_tensors(raw: bytes) -> bytes:
    return raw[:8] + struct.pack("<Q", 1 << 60) + raw[16:]


def more_tensors(raw: bytes) -> bytes:
    return raw[:8] + struct.pack("<Q", 90000) + raw[16:]


def many_fields(raw: bytes) -> bytes:
    return raw[:16] + struct.pack("<Q", 1 << 60) + raw[24:]


def long_string(raw: bytes) -> bytes:
    return raw[:24] + struct.pack("<Q", 1 << 62) + raw[32:]


def unknown_kind(raw: bytes) -> bytes:
    at = raw.index(b"general.architecture") + 20
    return raw[:at] + struct.pack("<I", 99) + raw[at + 4 :]


def long_array(raw: bytes) -> bytes:
    at = raw.index(b"general.architecture") + 20
    return raw[:at] + struct.pack("<IIQ", 9, 4, 1 << 50) + raw[at + 16 :]


def nested_arrays(raw: bytes) -> bytes:
    at = raw.index(b"general.architecture") + 20
    return raw[:at] + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2000 + raw[at:]


def beyond(raw: bytes) -> bytes:
    at = head_of(raw) + len("token_embd.weight") + 4 + 16 + 4
    return raw[:at] + struct.pack("<Q", 1 << 40) + raw[at + 8 :]


def askew(raw: bytes) -> bytes:
    at = head_of(raw) + len("token_embd.weight") + 4 + 16 + 4
    return raw[:at] + struct.pack("<Q", 7) + raw[at + 8 :]


def many_dimensions(raw: bytes) -> bytes:
    at = head_of(raw) + len("token_embd.weight")
    return raw[:at] + struct.pack("<I", 1 << 30) + raw[at + 4 :]


def huge_shape(raw: bytes) -> bytes:
    at = head_of(raw) + len("token_embd.weight") + 4
    return raw[:at] + struct.pack("<QQ", 1 << 63, 1 << 63) + raw[at + 16 :]


def unknown_type(raw: bytes) -> bytes:
    at = head_of(raw) + len("token_embd.weight") + 4 + 16
    return raw[:at] + struct.pack("<I", 77) + raw[at + 4 :]


def over_another(raw: bytes) -> bytes:
    at = raw.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8 + 4
    return raw[:at] + struct.pack("<Q", 0) + raw[at + 8 :]


def big_endian(raw: bytes) -> bytes:
    return raw[:4] + struct.pack(">I", 3) + raw[8:]


def old(raw: bytes) -> bytes:
    return raw[:4] + struct.pack("<I", 1) + raw[8:]


DAMAGES = [
    cut, many_tensors, more_tensors, many_fields, long_string, unknown_kind, long_array, nested_arrays,
    beyond, askew, many_dimensions, huge_shape, unknown_type, over_another, big_endian, old,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_lies_is_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    spec = FAMILIES["qwen2"]
    whole = files.document(files.fields_of(spec), files.converted(spec, tiny.weights(spec)))
    assert damage(whole) != whole
    path = tmp_path / "a.gguf"
    path.write_bytes(damage(whole))
    assert "not a complete GGUF file" in refused(path)


def test_every_cut_of_a_small_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    whole = files.document(
        {"general.architecture": "qwen2", "a": [1, 2], "b": ["x", "y"]},
        {"t": files.plain(torch.ones(8), "F32")},
    )
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert "not a complete GGUF file" in refused(path), length


def test_a_type_without_a_reader_is_named(tmp_path: Path) -> None:
    spec = replace(FAMILIES["qwen2"], hidden=64, head_dim=16, ffn=96, vocab=64)
    stored = files.converted(spec, tiny.weights(spec))
    stored["blk.0.ffn_up.weight"] = ("IQ4_NL", (96, 64), files.random_blocks("IQ4_NL", 96, 64))
    output = refused(files.write(tmp_path / "a.gguf", spec, stored))
    assert "tensors of type IQ4_NL are not supported; supported: F32, F16, BF16, Q4_0" in output


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    spec = FAMILIES["qwen2"]
    path = files.write(tmp_path / "a.gguf", spec, files.converted(spec, tiny.weights(spec)))
    source = weight_sources.open_source(weight_sources.choose_model(str(path), "auto"), 0)
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(EngineError, match="changed while being read"):
        [source.read(name) for name in list_tensors(spec)]
