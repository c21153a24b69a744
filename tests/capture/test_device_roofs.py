"""What a device can do at best: told in a meta, kept in a file, stated in a table."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture import device_roofs
from capture.device_roofs import Roof

HERE = Roof(
    "Some CPU, 2 cores", "measured", 34e9, 23.5e9, {"fp32": 82e9, "bf16": 193e9}, 900.0, "cache",
    "2026-01-02 03:04 UTC", torch="2.13.0",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_is_kept_comes_back_under_its_key() -> None:
    assert device_roofs.load_measured_roofs() == {}
    path = device_roofs.save_measured_roof(HERE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert device_roofs.load_measured_roofs() == {HERE.key: HERE}


@pytest.mark.parametrize("part", ["device", "uuid", "driver", "torch"])
def test_another_device_driver_or_torch_is_measured_anew(part: str) -> None:
    device_roofs.save_measured_roof(HERE)
    other = Roof(**{**vars(HERE), part: "another", "read_bytes_per_s": 1e9})
    assert other.key not in device_roofs.load_measured_roofs()
    device_roofs.save_measured_roof(other)
    assert device_roofs.load_measured_roofs() == {HERE.key: HERE, other.key: other}


def test_a_second_measurement_takes_the_place_of_the_first() -> None:
    device_roofs.save_measured_roof(HERE)
    again = Roof(**{**vars(HERE), "read_bytes_per_s": 36e9, "when": "2026-02-03 04:05 UTC"})
    device_roofs.save_measured_roof(again)
    assert device_roofs.load_measured_roofs() == {HERE.key: again}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"roofs":7}',
        '{"roofs":[7,null,{}]}',
        '{"roofs":[{"read_bytes_per_s":-1}]}',
        "[" * 9999,
    ],
)
def test_a_damaged_file_holds_nothing_and_is_replaced(text: str) -> None:
    place = device_roofs.find_measured_roofs_file()
    assert place
    place.write_text(text)
    assert device_roofs.load_measured_roofs() == {}
    device_roofs.save_measured_roof(HERE)
    assert list(device_roofs.load_measured_roofs()) == [HERE.key]


def test_memory_is_the_faster_of_reading_and_copying() -> None:
    assert HERE.memory_bytes_per_s == 34e9
    assert Roof("x", "measured", 10.0, 12.0).memory_bytes_per_s == 12.0


@pytest.mark.parametrize(
    ("dtype", "rate"),
    [
        ("float32", 82e9),
        ("fp32", 82e9),
        ("bfloat16", 193e9),
        ("bf16", 193e9),
        ("float16", 193e9),
        (None, 193e9),
    ],
)
def test_the_arithmetic_of_the_dtype_or_else_the_fastest(dtype: str | None, rate: float) -> None:
    assert HERE.find_flop_rate(dtype) == rate


@pytest.mark.parametrize(
    "told",
    [
        None, 7, "fast", [], {}, {"read_bytes_per_s": 0}, {"read_bytes_per_s": float("nan")},
        {"read_bytes_per_s": float("inf")}, {"read_bytes_per_s": True}, {"read_bytes_per_s": "34e9"},
        {"read_bytes_per_s": 10**400}, {"flop_per_s": [1]}, {"flop_per_s": {"bf16": -1}},
    ],
)  # fmt: skip
def test_a_roof_that_cannot_be_is_none(told: Any) -> None:
    assert device_roofs.from_meta(told) is None


def test_a_meta_survives_json() -> None:
    assert device_roofs.from_meta(json.loads(json.dumps(HERE.as_meta()))) == HERE


@pytest.mark.parametrize(
    ("device", "gigabytes", "teraflops"),
    [
        ("NVIDIA A100-SXM4-40GB", 1555, 312),
        ("NVIDIA A100-SXM4-80GB", 2039, 312),
        ("NVIDIA H100 80GB HBM3", 3350, 989),
        ("NVIDIA H100 PCIe", 2000, 756),
        ("NVIDIA H200", 4800, 989),
        ("NVIDIA B200", 8000, 2250),
        ("NVIDIA GB200", 8000, 2250),
        ("NVIDIA B300 SXM6 AC", 8000, 2250),
        ("NVIDIA GH200 480GB", 4000, 989),
        ("NVIDIA GH200 144G HBM3e", 4900, 989),
        ("NVIDIA A10G", 600, 70),
        ("Tesla V100-SXM2-16GB", 900, 125),
        ("Tesla V100-PCIE-16GB", 900, 112),
        ("NVIDIA GeForce RTX 5090", 1792, 209.5),
        ("NVIDIA GeForce RTX 5080", 960, 112.6),
        ("AMD Instinct MI355X", 8000, 2500),
        ("NVIDIA L4", 300, 121),
        ("NVIDIA L40S", 864, 362),
        ("NVIDIA GeForce RTX 4090", 1008, 165),
        ("NVIDIA GeForce RTX 3090", 936, 71),
        ("Tesla T4", 320, 65),
        ("AMD Instinct MI300X", 5300, 708),
    ],
)
def test_known_gpus(device: str, gigabytes: float, teraflops: float) -> None:
    roof = device_roofs.from_table(device)
    assert roof and roof.source == "table" and roof.floor_ns == 2000
    assert (roof.memory_bytes_per_s, roof.find_flop_rate("bfloat16")) == (gigabytes * 1e9, teraflops * 1e12)


@pytest.mark.parametrize(
    "device",
    ["AMD EPYC, 2 cores", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "",
     "NVIDIA H100 NVL", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA L40", "cpu", "NVIDIA GeForce RTX 5090 D",
     "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"],
)  # fmt: skip
def test_a_gpu_that_only_resembles_a_known_one_has_no_roof(device: str) -> None:
    assert device_roofs.from_table(device) is None


@pytest.mark.parametrize(
    ("processors", "memory", "capability", "name"),
    [
        (304, 206_141_652_992, (9, 4), "AMD Instinct MI300X"),  # as traces of one state it: 191.98 GiB
        (304, 256 << 30, (9, 4), "AMD Instinct MI325X"),
        (132, 85_029_158_912, (9, 0), None),  # an H100, or the H800 with the same properties
        (304, 206_141_652_992, (9, 0), None),
        (None, None, (None, None), None),
        ("304", "much", (9, 4), None),
    ],
)
def test_a_gpu_that_is_alone_with_its_properties_is_known_by_them(
    processors: Any, memory: Any, capability: tuple[Any, Any], name: str | None
) -> None:
    assert device_roofs.find_gpu_name(processors, memory, capability) == name
