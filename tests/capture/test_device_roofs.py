"""What a device can do at best: told in a meta, kept in a file, stated in a table."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from capture import device_roofs
from capture.device_roofs import Roof
from capture.errors import UsageError

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
    other = structs.replace(HERE, **{part: "another", "read_bytes_per_s": 1e9})
    assert other.key not in device_roofs.load_measured_roofs()
    device_roofs.save_measured_roof(other)
    assert device_roofs.load_measured_roofs() == {HERE.key: HERE, other.key: other}


def test_a_second_measurement_takes_the_place_of_the_first() -> None:
    device_roofs.save_measured_roof(HERE)
    again = structs.replace(HERE, read_bytes_per_s=36e9, when="2026-02-03 04:05 UTC")
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
        ("NVIDIA A100-SXM4-40GB", 1555, 312), ("NVIDIA A100-SXM4-80GB", 2039, 312),
        ("NVIDIA A100 80GB PCIe", 1935, 312), ("NVIDIA A100-PCIE-40GB", 1555, 312),
        ("NVIDIA H100 80GB HBM3", 3350, 989), ("NVIDIA H100 PCIe", 2000, 756),
        ("NVIDIA H100 NVL", 3900, 835.5),
        ("NVIDIA H200", 4800, 989), ("NVIDIA H200 NVL", 4800, 835.5), ("NVIDIA H20", 4000, 148),
        ("NVIDIA B200", 8000, 2250), ("NVIDIA GB200", 8000, 2500), ("NVIDIA B300 SXM6 AC", 8000, 2250),
        ("NVIDIA GB300", 8000, 2500), ("NVIDIA GH200 480GB", 4000, 989),
        ("NVIDIA GH200 144G HBM3e", 4900, 989),
        ("NVIDIA A10G", 600, 0), ("NVIDIA A10", 600, 125), ("Tesla V100-SXM2-16GB", 900, 125),
        ("Tesla V100-PCIE-16GB", 900, 112), ("Tesla V100S-PCIE-32GB", 1134, 130),
        ("NVIDIA GeForce RTX 5090", 1792, 209.5), ("NVIDIA GeForce RTX 5080", 960, 112.6),
        ("NVIDIA GeForce RTX 5070 Ti", 896, 87.9), ("NVIDIA GeForce RTX 5070", 672, 61.7),
        ("NVIDIA RTX A6000", 768, 154.8), ("NVIDIA RTX 6000 Ada Generation", 960, 364.2),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792, 503.8),
        ("NVIDIA L4", 300, 121), ("NVIDIA L40", 864, 181.05), ("NVIDIA L40S", 864, 362),
        ("NVIDIA GeForce RTX 4090", 1008, 165.2), ("NVIDIA GeForce RTX 3090", 936, 71),
        ("NVIDIA GeForce RTX 3090 Ti", 1008, 80), ("Tesla T4", 320, 65), ("NVIDIA GB10", 273, 0),
        ("AMD Instinct MI300X", 5300, 1307.4), ("AMD Instinct MI300X VF", 5300, 1307.4),
        ("AMD Instinct MI325X", 6000, 1307.4), ("AMD Instinct MI355X", 8000, 2516.6),
        ("AMD Instinct MI250X/MI250", 1638.4, 191.5), ("AMD Instinct MI250", 1638.4, 181),
        ("gfx908", 1228.8, 92.3),
        ("AMD Radeon RX 7900 XTX", 960, 122.8), ("Radeon RX 7900 XT", 800, 103),
        ("Radeon 8060S Graphics", 256, 0),
        ("Intel(R) Data Center GPU Max 1550", 3276.8, 0), ("Intel(R) Arc(TM) B580 Graphics", 456, 0),
        ("TPU v5 lite", 819, 197), ("TPU v5e", 819, 197), ("TPU v5", 2765, 459), ("TPU v5p", 2765, 459),
        ("TPU v6 lite", 1638, 918), ("Apple M4 Max", 546, 0), ("Apple M4", 120, 0),
    ],
)  # fmt: skip
def test_a_device_is_known_by_the_name_that_sources_write(
    device: str, gigabytes: float, teraflops: float
) -> None:
    """As nsys, torch, rocprof and JAX write it; bandwidth and dense bf16 of the maker, 0 where not known."""
    roof = device_roofs.from_table(device)
    assert roof and roof.source == "table" and roof.kind == "stated" and roof.floor_ns == 2000
    assert (roof.memory_bytes_per_s, roof.find_flop_rate("bfloat16")) == (gigabytes * 1e9, teraflops * 1e12)


@pytest.mark.parametrize(
    "device",
    ["AMD EPYC, 2 cores", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "", "cpu",
     "NVIDIA GeForce RTX 5090 D", "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA H200 MIG 1g.18gb", "Orin",
     "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
     "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA H800 PCIe"],
)  # fmt: skip
def test_a_gpu_that_only_resembles_a_known_one_has_no_roof(device: str) -> None:
    assert device_roofs.from_table(device) is None


def test_every_row_of_the_table_has_a_kind_an_author_and_a_source() -> None:
    roofs = device_roofs.list_table_roofs()
    assert len({roof.device for roof in roofs if roof.kind == "stated"}) >= 80
    for roof in roofs:
        assert roof.kind in device_roofs.KINDS and roof.by and roof.origin.startswith("https://"), roof.device
        assert roof.memory_bytes_per_s or roof.flop_per_s, roof.device
        assert set(roof.flop_per_s) <= set(device_roofs.FORMATS)


def test_every_value_of_the_table_names_where_else_it_was_found() -> None:
    """The column `checked` has `LETTER column column; LETTER column`; the letters are explained above."""
    lines = Path(device_roofs.__file__).with_suffix(".tsv").read_text().splitlines()
    legend = " ".join(line for line in lines if line.startswith("#"))
    header, *rows = (line.split("\t") for line in lines if not line.startswith("#"))
    for cells in (dict(zip(header, row, strict=True)) for row in rows):
        parts = [part.split() for part in cells["checked"].split("; ")]
        assert all(f" {letter} " in legend for letter, *_ in parts), cells["device"]
        named = [column for _, *columns in parts for column in columns]
        values = {c for c in ("memory", "link", "power", *device_roofs.FORMATS) if cells[c] not in ("", "-")}
        assert sorted(named) == sorted(values), cells["device"]


def test_no_row_hides_another_and_narrow_formats_are_not_slower() -> None:
    """Each row is found by its own device's name, and its rates rise from wide to narrow formats."""
    for roof in device_roofs.list_table_roofs():
        named = device_roofs.from_table(roof.device, roof.kind)
        aliases = {"NVIDIA GH200 96GB", "NVIDIA RTX PRO 6000 Blackwell Workstation"}
        assert named == roof or roof.device in aliases, roof.device
        rates = [roof.flop_per_s[name] for name in ("fp32", "bf16", "fp8", "fp4") if name in roof.flop_per_s]
        assert rates == sorted(rates), roof.device
        if roof.kind == "achievable" and (stated := device_roofs.from_table(roof.device)):
            assert all(rate < stated.flop_per_s[name] for name, rate in roof.flop_per_s.items())


def test_the_format_decides_the_rate() -> None:
    h100, ampere = (device_roofs.from_table(name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA A100"))
    assert h100 and ampere
    rates = [h100.find_flop_rate(f) / 1e12 for f in ("fp64", "fp32", "bf16", "fp8", "int8")]
    assert rates == [67, 67, 989, 1979, 1979]
    assert ampere.find_flop_rate("fp8") == ampere.find_flop_rate("bf16"), "without units: as the wider format"
    spark = device_roofs.from_table("NVIDIA GB10")
    assert spark and spark.find_flop_rate("fp4") == 0 and spark.find_flop_rate("bf16") == 0, "not known"


def test_stated_and_achievable_rates_of_one_device_are_two_rows() -> None:
    stated, reached = (device_roofs.from_table("AMD Instinct MI300X", kind) for kind in device_roofs.KINDS)
    assert stated and (stated.by, round(stated.find_flop_rate("bf16") / 1e12)) == ("AMD", 1307)
    assert reached and reached.find_flop_rate("bf16") == 708e12 and "rocm.blogs.amd.com" in reached.origin


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


def test_a_given_roof_is_read_from_items_a_file_or_a_name(tmp_path: Path) -> None:
    roof = device_roofs.read_roof("mem=3.35TB/s, bf16=989T,fp8=1.979P,power=700W,floor=1.5us,link=900GB/s")
    assert (roof.memory_bytes_per_s, roof.floor_ns, roof.power_w) == (3.35e12, pytest.approx(1500), 700)
    assert roof.flop_per_s == {"bf16": 989e12, "fp8": 1979e12} and roof.link_bytes_per_s == 900e9
    file = tmp_path / "mine"
    file.write_text("# of the card in the cellar\nmem = 1TB/s  # read\n\nbf16 = 90TFLOP/s\n")
    assert device_roofs.read_roof(str(file)).flop_per_s == {"bf16": 90e12}
    assert device_roofs.read_roof("NVIDIA L4").memory_bytes_per_s == 300e9


@pytest.mark.parametrize(
    "text", ["mem=fast", "mem=", "bf17=9T", "mem=3TFLOP/s", "bf16=3GB/s", "=", "mem=0", "bf16=-1T", "a card"]
)
def test_a_roof_that_cannot_be_read_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        device_roofs.read_roof(text)
