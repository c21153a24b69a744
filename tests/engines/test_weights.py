"""Weights by name from folders and caches; whatever is short, wrong or dangerous is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from capture.errors import EngineError, UsageError
from engines.models.catalogue import find_preset
from engines.models.spec import count_parameters, list_tensors
from engines.weights import fastest_storage, hub_cache, matrix_storage, weight_sources
from engines.weights.checkpoint import ShardReader
from engines.weights.safetensors_headers import read_safetensors_header
from tests.engines import folders, tiny


@pytest.mark.parametrize(
    ("rates", "taken"),
    [
        ((21.2, 17.5, 8.6), 0),
        ((17.9, 24.3, 9.1), 0),  # 1.36 times as fast, once: as ways that are alike measure on a busy machine
        ((6.0, 17.5, 8.6), 1),  # a processor that has no such instruction
        ((3.0, 4.0, 9.1), 2),
    ],
)
def test_ways_that_are_about_as_fast_do_not_take_turns(rates: tuple[float, ...], taken: int) -> None:
    ways = (matrix_storage.BF16_PREPACKED, matrix_storage.FP16, matrix_storage.BF16)
    measured = [fastest_storage.MeasuredStorage(way, rate) for way, rate in zip(ways, rates, strict=True)]
    assert fastest_storage.select_default_or_clearly_faster(measured).storage is ways[taken]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_tensors_come_back_by_name(dtype: torch.dtype, shards: int, tmp_path: Path) -> None:
    folder, spec = folders.gemma(tmp_path, dtype, shards)
    source = weight_sources.open_source(weight_sources.choose_model("gemma", str(folder)), 0)
    wanted = tiny.weights(spec)
    assert all(torch.equal(source.read(n), wanted[n].to(dtype)) for n in list_tensors(spec))


def test_the_package_safetensors_agrees(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    table = {"a": torch.randn(3, 5), "b": torch.arange(4.0).half(), "empty": torch.empty(0, 2)}
    library.save_file(table, tmp_path / "model.safetensors")
    shards = ShardReader(tmp_path)
    assert all(torch.equal(shards.read(n), t) for n, t in table.items())


def test_the_cache_is_searched_its_main_snapshot_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--google--gemma-3-1b-it"
    for sha in ("aaa", "bbb"):
        folders.gemma(model / "snapshots" / sha)
    assert hub_cache.list_cached_folders(find_preset("gemma-3-1b"))[0].name == "aaa"
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbb\n")
    choice = weight_sources.choose_model("gemma-3-1b", "auto")
    assert choice.folder and choice.folder.name == "bbb"
    assert choice.spec.hidden == 48  # the config decides, not the name


def test_without_a_cache_the_weights_are_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert weight_sources.choose_model("gemma-3-1b", "auto").folder is None


def test_random_weights_have_the_real_shapes_and_differ() -> None:
    spec = tiny.SPECS["gemma3"]
    source = weight_sources.RandomWeights(spec, seed=7)
    again = weight_sources.RandomWeights(spec, seed=7)
    read = {n: source.read(n) for n in list_tensors(spec)}
    assert {n: tuple(t.shape) for n, t in read.items()} == list_tensors(spec)
    assert all(torch.equal(again.read(n), t) for n, t in read.items())
    assert not torch.equal(weight_sources.RandomWeights(spec, seed=8).read("model.embed_tokens.weight"),
                           read["model.embed_tokens.weight"])  # fmt: skip
    gate, up = (read[f"model.layers.0.mlp.{n}_proj.weight"] for n in ("gate", "up"))
    assert not torch.equal(gate, up)
    assert 0.018 < gate.float().std() < 0.022
    assert not read["model.norm.weight"].any()
    assert weight_sources.RandomWeights(tiny.SPECS["llama"], 0).read("model.norm.weight").eq(1).all()


@pytest.mark.parametrize("way", [matrix_storage.FP32, matrix_storage.BF16])
def test_what_is_lent_is_copied_by_who_keeps_it(way: matrix_storage.PlainStorage) -> None:
    """Else all matrices were one piece of memory, and a step as fast as the caches."""
    source = weight_sources.RandomWeights(tiny.SPECS["llama"], 0, way.dtype)
    names = [f"model.layers.{i}.mlp.down_proj.weight" for i in range(3)]
    lent = [source.read(name) for name in names]
    assert len({t.untyped_storage().data_ptr() for t in lent}) == 1
    kept = [way.build_matrix(t, torch.device("cpu")) for t in lent]
    table, _ = way.build_embedding_and_head(
        source.read("model.embed_tokens.weight"), None, torch.device("cpu")
    )
    own = [k.weight.untyped_storage().data_ptr() for k in (*kept, table)]
    assert len({*own, lent[0].untyped_storage().data_ptr()}) == 5
    assert all(torch.equal(k.weight, t) for k, t in zip(kept, lent, strict=True))


def test_random_weights_are_the_same_in_any_dtype() -> None:
    spec = tiny.SPECS["gemma3"]
    as_bf16 = weight_sources.RandomWeights(spec, seed=7)
    for dtype in (torch.float16, torch.float32):
        stored = weight_sources.open_source(weight_sources.ModelChoice(spec, None), 7, dtype)
        for name in list_tensors(spec):
            tensor = stored.read(name)
            assert tensor.dtype == dtype and torch.equal(tensor, as_bf16.read(name).to(dtype))


def test_a_tensor_larger_than_the_block_is_filled_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_sources, "RANDOM_BLOCK", 1000)
    table = weight_sources.RandomWeights(tiny.SPECS["gemma3"], 0).read("model.embed_tokens.weight")
    assert table[-1].count_nonzero() > 40 and table.float().std() > 0.015


def cut(raw: bytes) -> bytes:
    return raw[:-1]


def longer(raw: bytes) -> bytes:
    return raw + b"\0"


def headless(raw: bytes) -> bytes:
    return raw[:4]


def huge_header(raw: bytes) -> bytes:
    return (1 << 62).to_bytes(8, "little") + raw[8:]


def other_shape(raw: bytes) -> bytes:
    return raw.replace(b'"shape": [48]', b'"shape": [47]', 1)


def overlap(raw: bytes) -> bytes:
    return raw.replace(b'"data_offsets": [57792, ', b'"data_offsets": [57790, ', 1)


def twice(raw: bytes) -> bytes:
    return raw.replace(b'"__metadata__"', b'"model.norm.weight"', 1)


@pytest.mark.parametrize("damage", [cut, longer, headless, huge_header, other_shape, overlap, twice])
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder, _ = folders.gemma(tmp_path)
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)
    with pytest.raises(EngineError, match="not a complete safetensors file"):
        ShardReader(folder)


def test_every_cut_of_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = folders.safetensors({"a": torch.ones(2), "b": torch.ones(3, 2)})
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(EngineError):
            read_safetensors_header(path)


def test_a_wrong_shape_and_a_missing_tensor_are_named(tmp_path: Path) -> None:
    spec = tiny.SPECS["gemma3"]
    table = tiny.weights(spec)
    table["model.layers.3.mlp.up_proj.weight"] = torch.ones(48, 80)
    folders.write(tmp_path, folders.OLD_GEMMA, table)
    with pytest.raises(EngineError, match=r"\.3\.mlp\.up_proj\.weight has shape \[48, 80\].*\[80, 48\]"):
        weight_sources.open_source(weight_sources.choose_model("x", str(tmp_path)), 0)
    del table["model.layers.3.mlp.up_proj.weight"]
    folders.write(tmp_path, folders.OLD_GEMMA, table)
    with pytest.raises(EngineError, match=r"tensor model\.layers\.3\.mlp\.up_proj\.weight is missing"):
        weight_sources.open_source(weight_sources.choose_model("x", str(tmp_path)), 0)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", 7])
def test_an_index_stays_in_its_folder(name: object, tmp_path: Path) -> None:
    folder, _ = folders.gemma(tmp_path / "m")
    index = {"weight_map": {"model.norm.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineError, match=r"index\.json"):
        ShardReader(folder)


def test_pickles_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(folders.OLD_GEMMA))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(EngineError, match=r"can run code.*convert it"):
        weight_sources.open_source(weight_sources.choose_model("x", str(tmp_path)), 0)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder, _ = folders.gemma(tmp_path)
    shards = ShardReader(folder)
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(EngineError, match="changed while being read"):
        shards.read("model.norm.weight")


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        weight_sources.choose_model("gemma-3-1b", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match=r"has no config\.json"):
        weight_sources.choose_model("gemma-3-1b", str(tmp_path))


def test_memory_is_checked_with_figures_and_smaller_choices() -> None:
    spec = find_preset("gemma-3-1b")
    output = (
        r"gemma-3-1b needs 2\.0 GB, 0\.8 GB are free; these fit: "
        r"smollm2-360m \(0\.7 GB\), gemma-3-270m \(0\.5 GB\), smollm2-135m \(0\.3 GB\)"
    )
    with pytest.raises(EngineError, match=output):
        weight_sources.check_memory(spec, 2_000_000_000, 800_000_000, lambda s: 2 * count_parameters(s))
    weight_sources.check_memory(spec, 10, 10, lambda s: 1)


def test_a_gpus_memory_is_asked_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7 << 30, 80 << 30))
    assert weight_sources.read_free_bytes(torch.device("cuda")) == 7 << 30
    assert weight_sources.read_free_bytes(torch.device("mps")) == weight_sources.UNKNOWN_BYTES
    assert 0 < weight_sources.read_free_bytes(torch.device("cpu")) < weight_sources.UNKNOWN_BYTES
