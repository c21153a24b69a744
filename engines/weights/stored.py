"""What a folder of a model must hold, and where in it a tensor of ours is. No torch."""

from engines.models.catalogue import FAMILIES_BY_TYPE
from engines.models.config import Piece
from engines.models.spec import Spec, tensors


def piece_of(spec: Spec, name: str) -> Piece | None:
    """Return where a folder keeps a tensor of ours; None where it is a tensor of its own, by that name."""
    return FAMILIES_BY_TYPE[spec.family].find_piece(spec, name)


def stored_tensors(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a folder of this model holds."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in tensors(spec).items():
        piece = piece_of(spec, name)
        if piece is None:
            shapes[name] = shape
            continue
        shapes[piece.name] = piece.shape
        if piece.scales:
            shapes[piece.scales] = piece.shape[:-1]
    return shapes
