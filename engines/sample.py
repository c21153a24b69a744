"""Choose the next token from logits: greedy, or by temperature, top-k and top-p with a seed."""

from dataclasses import dataclass

import torch

from capture.errors import UsageError


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen; temperature 0 takes the likeliest."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def check(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UsageError("--temperature lies between 0 and 100")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UsageError("--top-k is 0 or more, --top-p lies above 0 and up to 1")

    @property
    def phases(self) -> tuple[str, ...]:
        """The methods of a Sampler that choose a token, in their order."""
        if self.temperature == 0:
            return ("sample_argmax",)
        return ("sample_phase1", "sample_phase2", "sample_phase3")


GREEDY = SamplingOptions()


class Sampler:
    """Holds the logits of a step while its phases narrow them down to `token`, one per sequence."""

    def __init__(self, sampling: SamplingOptions, device: torch.device) -> None:
        self._sampling = sampling
        self._random = torch.Generator(device).manual_seed(sampling.seed)
        self.logits = torch.empty(0)
        self.token = torch.empty(0, dtype=torch.long)
        self._ids = self.token
        self._chances = self.logits

    def sample_argmax(self) -> None:
        self.token = self.logits.argmax(-1)

    def sample_phase1(self) -> None:
        """Scale by temperature and cut to the top k, best first."""
        vocab = self.logits.shape[-1]
        k = min(self._sampling.top_k or vocab, vocab)
        self._chances, self._ids = (self.logits.float() / self._sampling.temperature).topk(k)

    def sample_phase2(self) -> None:
        """Turn logits into chances and drop the tail beyond top p; the likeliest always stays."""
        chances = self._chances.softmax(-1)
        if self._sampling.top_p < 1:
            before = chances.cumsum(-1) - chances
            chances = chances.masked_fill(before >= self._sampling.top_p, 0.0)
        self._chances = chances

    def sample_phase3(self) -> None:
        """Draw a token of each sequence."""
        drawn = torch.multinomial(self._chances, 1, generator=self._random)
        self.token = self._ids.gather(-1, drawn)[:, 0]
