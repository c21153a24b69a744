"""Parse generated GEMM and convolution names: data type, layout, tile, library."""

import re
from typing import Final, NamedTuple

_MAX_NAME_CHARS: Final = 512  # longer names are cut

_TENSILE_DTYPES: Final = {
    "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "complex64", "Z": "complex128", "X": "tf32",
    "I": "int8", "I8": "int8", "F8": "fp8", "B8": "fp8 e5m2", "F8N": "fp8", "B8N": "fp8 e5m2", "F6": "fp6",
    "F4": "fp4", "4xi8": "int8",
}  # fmt: skip
_NVJET_DTYPES: Final = {
    "t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8", "r": "fp8 e5m2", "o": "fp4", "d": "fp64", "i": "int8",
}  # fmt: skip
_DTYPES: Final = {
    "bf16": "bf16", "f16": "fp16", "fp16": "fp16", "f32": "fp32", "tf32": "tf32", "s8": "int8", "i8": "int8",
    "e4m3": "fp8", "e5m2": "fp8 e5m2", "f64": "fp64", "h": "fp16", "s": "fp32", "d": "fp64", "e2m1": "fp4",
    "f32f32": "fp32", "bf16bf16": "bf16", "f16f16": "fp16", "e4m3e4m3": "fp8", "i8i8": "int8",
    "tf32tf32": "tf32", "f64f64": "fp64", "bfloat16": "bf16", "float16": "fp16",
}  # fmt: skip
_DTYPE_PATTERN: Final = "|".join(sorted(_DTYPES, key=len, reverse=True))

_TENSILE: Final = re.compile(r"^Cijk_A(?P<a>lik|ilk)_B(?P<b>ljk|jlk)_(?P<type>[A-Z0-9x]+?)(?:S?_|$)")
_TENSILE_TILE: Final = re.compile(r"_MT(\d+)x(\d+)x(\d+)")
_NVJET: Final = re.compile(r"^nvjet_(?:sm\d+_)?(?P<type>[a-z]+)_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+")
_NVJET_LAYOUT: Final = re.compile(r"_([TN]{2})[TN]?$")
_XMMA: Final = re.compile(
    r"xmma_gemm_(?P<type>[a-z0-9]+)_\w*?_(?P<layout>[tn]{2})_n_tilesize(?P<tile>\d+x\d+x\d+)"
)
_CUTLASS: Final = re.compile(
    rf"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_(?:(?P<type>{_DTYPE_PATTERN})_)?(?P<acc>[a-z])\d*gemm"
    rf"(?:_(?:relu|gelu|bias))?_?(?P<out>{_DTYPE_PATTERN})?_?(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+_(?P<layout>[tn]{{2}})"
)
_ARCHITECTURE: Final = re.compile(
    rf"^(?:ampere|volta|turing|maxwell|hopper|ada|pascal|kepler)_(?:(?P<type>{_DTYPE_PATTERN})_)?(?P<acc>[a-z])(?P<op>\d*)gemm_"
    rf"(?:(?P<out>{_DTYPE_PATTERN})_)?(?P<m>\d+)x(?P<n>\d+)"
)
_CONVOLUTION: Final = re.compile(
    r"(?P<way>fprop|dgrad|wgrad)(?:_implicit_gemm_(?P<type>[a-z0-9]+)_\w*tilesize(?P<tile>\d+x\d+x\d+)"
    rf"|_(?:optimized|analytic|few_channels|fixed_channels)(?:_(?P<out>{_DTYPE_PATTERN}))?_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x)"
)
_IGEMM: Final = re.compile(
    r"^igemm_(?P<way>fwd|bwd|wrw)_gtc\w*?_(?P<type>bf16|fp16|fp32|int8)_\w*?_bt(?P<tile>\d+x\d+x\d+)"
)
_STAGES: Final = re.compile(r"stages_(\d+)x\d+")
_LAYOUT: Final = re.compile(r"_([tn]{2})(?:_v\d+)?$")


class GemmName(NamedTuple):
    """The parts of a generated name; a part that the name lacks is empty."""

    dtype: str
    layout: str  # T or N per operand
    tile: str  # rows, columns and depth of a block's tile
    vendor: str  # the library whose generator wrote the name: Tensile, cutlass, xmma …
    kind: str = "GEMM"

    def __str__(self) -> str:
        words = (self.kind, self.dtype, self.layout, self.tile, f"({self.vendor})")
        return " ".join(word for word in words if word)


def parse_gemm_name(name: str) -> GemmName | None:
    """Parse a name that a library generated for a product or convolution; None for any other name."""
    name = name[:_MAX_NAME_CHARS]
    for pattern, parse in _FORMS:
        if match := pattern.search(name):
            return parse(match, name)
    return None


def _parse_tensile(match: re.Match[str], name: str) -> GemmName:
    prefixes = [match["type"][:width] for width in (3, 2, 1)]
    dtype = next((_TENSILE_DTYPES[prefix] for prefix in prefixes if prefix in _TENSILE_DTYPES), "")
    layout = ("T" if match["a"] == "lik" else "N") + ("T" if match["b"] == "jlk" else "N")
    tile = _TENSILE_TILE.search(name)
    return GemmName(dtype, layout, "x".join(tile.groups()) if tile else "", "Tensile")


def _parse_nvjet(match: re.Match[str], name: str) -> GemmName:
    layout = _NVJET_LAYOUT.search(name)
    dtype = _NVJET_DTYPES.get(match["type"][0], "")
    return GemmName(dtype, layout[1] if layout else "", _format_tile(match), "nvjet")


def _parse_xmma(match: re.Match[str], name: str) -> GemmName:
    return GemmName(_DTYPES.get(match["type"], match["type"]), match["layout"].upper(), match["tile"], "xmma")


def _parse_cutlass(match: re.Match[str], name: str) -> GemmName:
    dtype = match["type"] or match["out"] or ("tf32" if "1688gemm" in name else match["acc"])
    return GemmName(_DTYPES.get(dtype, dtype), match["layout"].upper(), _format_tile(match), "cutlass")


def _parse_cublas(match: re.Match[str], name: str) -> GemmName:
    stages, layout = _STAGES.search(name), _LAYOUT.search(name)
    tile = f"{match['m']}x{match['n']}" + (f"x{stages[1]}" if stages else "")
    dtype = match["type"] or match["out"] or match["acc"]
    return GemmName(_DTYPES.get(dtype, dtype), layout[1].upper() if layout else "", tile, "cuBLAS")


def _parse_convolution(match: re.Match[str], name: str) -> GemmName:
    dtype = match["type"] or match["out"] or ""
    library = "xmma" if "xmma" in name else "cutlass"
    tile = match["tile"] or _format_tile(match)
    return GemmName(_DTYPES.get(dtype, dtype), "", tile, library, f"conv {match['way']}")


def _parse_igemm(match: re.Match[str], name: str) -> GemmName:
    return GemmName(match["type"], "", match["tile"], "igemm", f"conv {match['way']}")


def _format_tile(match: re.Match[str]) -> str:
    return f"{match['m']}x{match['n']}x{match['k']}"


_FORMS: Final = (
    (_TENSILE, _parse_tensile), (_NVJET, _parse_nvjet), (_XMMA, _parse_xmma), (_CUTLASS, _parse_cutlass),
    (_ARCHITECTURE, _parse_cublas), (_CONVOLUTION, _parse_convolution), (_IGEMM, _parse_igemm),
)  # fmt: skip
