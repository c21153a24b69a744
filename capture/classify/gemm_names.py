"""Names of products and convolutions that libraries generate: number format, layout, tile, library."""

import re
from typing import Final, NamedTuple

_LOOKED_AT: Final = 512  # characters of a name that are read

_LETTERS: Final = {
    "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "complex64", "Z": "complex128", "X": "tf32",
    "I": "int8", "I8": "int8", "F8": "fp8", "B8": "fp8 e5m2", "F8N": "fp8", "B8N": "fp8 e5m2", "F6": "fp6",
    "F4": "fp4", "4xi8": "int8",
}  # fmt: skip
_NVJET_LETTERS: Final = {
    "t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8", "r": "fp8 e5m2", "o": "fp4", "d": "fp64", "i": "int8",
}  # fmt: skip
_WORDS: Final = {
    "bf16": "bf16", "f16": "fp16", "fp16": "fp16", "f32": "fp32", "tf32": "tf32", "s8": "int8", "i8": "int8",
    "e4m3": "fp8", "e5m2": "fp8 e5m2", "f64": "fp64", "h": "fp16", "s": "fp32", "d": "fp64", "e2m1": "fp4",
    "f32f32": "fp32", "bf16bf16": "bf16", "f16f16": "fp16", "e4m3e4m3": "fp8", "i8i8": "int8",
    "tf32tf32": "tf32", "f64f64": "fp64", "bfloat16": "bf16", "float16": "fp16",
}  # fmt: skip
_WORD: Final = "|".join(sorted(_WORDS, key=len, reverse=True))

_TENSILE: Final = re.compile(r"Cijk_A(?P<a>lik|ilk)_B(?P<b>ljk|jlk)_(?P<type>[A-Z0-9x]+?)(?:S?_|$)")
_TENSILE_TILE: Final = re.compile(r"_MT(\d+)x(\d+)x(\d+)")
_NVJET: Final = re.compile(r"nvjet_(?:sm\d+_)?(?P<type>[a-z]+)_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+")
_NVJET_LAYOUT: Final = re.compile(r"_([TN]{2})[TN]?$")
_XMMA: Final = re.compile(
    r"xmma_gemm_(?P<type>[a-z0-9]+)_\w*?_(?P<layout>[tn]{2})_n_tilesize(?P<tile>\d+x\d+x\d+)"
)
_CUTLASS: Final = re.compile(
    rf"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_(?:(?P<type>{_WORD})_)?(?P<acc>[a-z])\d*gemm"
    rf"(?:_(?:relu|gelu|bias))?_?(?P<out>{_WORD})?_?(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+_(?P<layout>[tn]{{2}})"
)
_ARCHITECTURE: Final = re.compile(
    rf"^(?:ampere|volta|turing|maxwell|hopper|ada|pascal|kepler)_(?:(?P<type>{_WORD})_)?(?P<acc>[a-z])(?P<op>\d*)gemm_"
    rf"(?:(?P<out>{_WORD})_)?(?P<m>\d+)x(?P<n>\d+)"
)
_CONVOLUTION: Final = re.compile(
    r"(?P<way>fprop|dgrad|wgrad)(?:_implicit_gemm_(?P<type>[a-z0-9]+)_\w*tilesize(?P<tile>\d+x\d+x\d+)"
    rf"|_(?:optimized|analytic|few_channels|fixed_channels)(?:_(?P<out>{_WORD}))?_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x)"
)
_IGEMM: Final = re.compile(
    r"igemm_(?P<way>fwd|bwd|wrw)_gtc\w*?_(?P<type>bf16|fp16|fp32|int8)_\w*?_bt(?P<tile>\d+x\d+x\d+)"
)
_STAGES: Final = re.compile(r"stages_(\d+)x\d+")
_LAYOUT: Final = re.compile(r"_([tn]{2})(?:_v\d+)?$")


class Gemm(NamedTuple):
    """What a generated name says of a product; a part is empty where it does not."""

    dtype: str
    layout: str  # T or N for each operand
    tile: str  # rows, columns and depth of a block's tile
    maker: str

    kind: str = "GEMM"

    def __str__(self) -> str:
        words = (self.kind, self.dtype, self.layout, self.tile, f"({self.maker})")
        return " ".join(word for word in words if word)


def gemm_of(name: str) -> Gemm | None:
    """Return what a library's generated name says of its product; None where the name is no such."""
    for reader in (_tensile, _nvjet, _xmma, _cutlass, _architecture, _convolution, _igemm):
        if gemm := reader(name[:_LOOKED_AT]):
            return gemm
    return None


def _tensile(name: str) -> Gemm | None:
    match = _TENSILE.match(name)
    if not match:
        return None
    letters, dtype = match["type"], ""
    for width in (3, 2, 1):
        if not dtype:
            dtype = _LETTERS.get(letters[:width], "")
    layout = ("T" if match["a"] == "lik" else "N") + ("T" if match["b"] == "jlk" else "N")
    tile = _TENSILE_TILE.search(name)
    return Gemm(dtype, layout, "x".join(tile.groups()) if tile else "", "Tensile")


def _nvjet(name: str) -> Gemm | None:
    match = _NVJET.match(name)
    if not match:
        return None
    layout = _NVJET_LAYOUT.search(name)
    tile = f"{match['m']}x{match['n']}x{match['k']}"
    return Gemm(_NVJET_LETTERS.get(match["type"][0], ""), layout[1] if layout else "", tile, "nvjet")


def _xmma(name: str) -> Gemm | None:
    match = _XMMA.search(name)
    if not match:
        return None
    return Gemm(_WORDS.get(match["type"], match["type"]), match["layout"].upper(), match["tile"], "xmma")


def _cutlass(name: str) -> Gemm | None:
    match = _CUTLASS.search(name)
    if not match:
        return None
    dtype = match["type"] or match["out"] or ("tf32" if "1688gemm" in name else match["acc"])
    tile = f"{match['m']}x{match['n']}x{match['k']}"
    return Gemm(_WORDS.get(dtype, dtype), match["layout"].upper(), tile, "cutlass")


def _architecture(name: str) -> Gemm | None:
    match = _ARCHITECTURE.match(name)
    if not match:
        return None
    stages, layout = _STAGES.search(name), _LAYOUT.search(name)
    tile = f"{match['m']}x{match['n']}" + (f"x{stages[1]}" if stages else "")
    dtype = match["type"] or match["out"] or match["acc"]
    return Gemm(_WORDS.get(dtype, dtype), layout[1].upper() if layout else "", tile, "cuBLAS")


def _convolution(name: str) -> Gemm | None:
    match = _CONVOLUTION.search(name)
    if not match:
        return None
    dtype = match["type"] or match["out"] or ""
    tile = match["tile"] or f"{match['m']}x{match['n']}x{match['k']}"
    maker = "xmma" if "xmma" in name else "cutlass"
    return Gemm(_WORDS.get(dtype, dtype), "", tile, maker, f"conv {match['way']}")


def _igemm(name: str) -> Gemm | None:
    match = _IGEMM.match(name)
    return Gemm(match["type"], "", match["tile"], "igemm", f"conv {match['way']}") if match else None
