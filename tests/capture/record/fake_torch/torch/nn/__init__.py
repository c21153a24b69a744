"""Modules of the stand-in."""

import torch


class Module:
    training = True

    def _wrapped_call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl

    def parameters(self):
        return iter([torch.Parameter()])

    def buffers(self):
        return iter([])

    def named_modules(self):
        yield "", self
        for name, part in vars(self).items():
            if isinstance(part, Module):
                for path, inner in part.named_modules():
                    yield ".".join(filter(None, (name, path))), inner
