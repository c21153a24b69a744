"""A form of four or eight bits as the storage of a model."""

from collections import Counter
from typing import Final

import torch

from engines.weights.low_bit import Form, Packed, Report, distance, pack
from engines.weights.packed_matrices import Product, matrix, multiplied_as_stored
from engines.weights.storage import Weight

# bytes of a weight as torch's products hold it: scales in pairs, with the codes for many rows
_HELD: Final = {"q4f16_1": 0.625, "q4f32_1": 0.75 + 0.625, "q8_0": 1.0}


class Embedding:
    """A packed table: only the rows that are asked for are unpacked, to fp32."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.packed.some(ids).unpacked()


class Quantised:
    """Stores a model in a form: packs its matrices, and measures how far that takes them from the weights."""

    fusion: Final = "dequant"
    keeps: Final = False

    def __init__(self, form: Form, device: torch.device) -> None:
        self.name, self.dtype, self.weight_bytes = form.name, form.scale, form.bits_per_weight / 8
        self.report: Report | None = None  # hears of weights as they are packed
        self.form, self._reordered = form, device.type == "cpu" and not multiplied_as_stored(form, device)
        self._apart = self._length = 0.0
        self._computed: Counter[str] = Counter()

    def matrix(self, weight: Weight, device: torch.device) -> Product:
        return self._product(self._packed(weight, device))

    def ends(self, table: Weight, head: Weight | None, device: torch.device) -> tuple[Embedding, Product]:
        packed = self._packed(table, device)
        return Embedding(packed), self._product(packed if head is None else self._packed(head, device))

    @property
    def held(self) -> float:
        return _HELD[self.name] if self._reordered else self.weight_bytes

    @property
    def beside(self) -> float:
        return self.weight_bytes if self._reordered else 0.0

    @property
    def passing(self) -> float:
        # the weight in 16 bits, the matrix as it was packed and, where it is, as it is ordered
        return 2 + self.weight_bytes + (self.held if self._reordered else 0.0)

    @property
    def error(self) -> float:
        """How far all matrices lie from their weights, as a share of the weights' own length."""
        return (self._apart / self._length) ** 0.5 if self._length else 0.0

    @property
    def computed(self) -> str:
        """What the products do, the most frequent kind first."""
        return "; ".join(what for what, _ in self._computed.most_common())

    def _packed(self, weight: Weight, device: torch.device) -> Packed:
        if isinstance(weight, Packed):
            return self._taken(weight.to(device))
        packed = pack(weight.to(device), self.form, self.report)
        apart, length = distance(weight.to(device), packed)
        self._apart += apart
        self._length += length
        return packed

    def _taken(self, packed: Packed) -> Packed:
        """Return a matrix that was in this form already; it lies where its weights do."""
        self._length += sum(float(part.unpacked().square_().sum()) for part in packed.chunks())
        if self.report:
            self.report(packed.rows * packed.columns)
        return packed

    def _product(self, packed: Packed) -> Product:
        product = matrix(packed)
        self._computed[product.computed] += packed.rows * packed.columns
        return product
