"""A stand-in for torch, as small as watching needs: modules, and a stream that may be captured."""

__version__ = "0.0.fake"


def is_grad_enabled():
    return False


class Device:
    type = "cpu"


class Parameter:
    device = Device()

    @staticmethod
    def numel():
        return 4


class Ids:
    """A tensor of token numbers."""

    dtype = "torch.int64"

    def __init__(self, *shape):
        self.shape = shape

    def dim(self):
        return len(self.shape)

    @staticmethod
    def is_floating_point():
        return False


from . import nn  # noqa: E402, F401
