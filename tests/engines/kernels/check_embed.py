"""The embedding under Triton's interpreter, against its reference."""

import pytest
import torch

from engines.kernels import embed
from tests.engines.kernels.compare import DTYPES, close, rand


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "width"), [(1, 64), (3, 45), (2, 1152)])
def test_embed(batch: int, width: int, dtype: torch.dtype) -> None:
    table, token = rand(11, width, dtype=dtype), torch.tensor([10, 0, 7][:batch])
    position = torch.tensor([4, 9, -1][:batch], dtype=torch.int32)
    wanted, after = embed.reference(table, token, position, 33.75)
    stream = torch.full((batch, width), float("nan"))
    embed.launch(table, token, position, stream, 33.75)
    close(stream, wanted)
    assert torch.equal(position, after)
