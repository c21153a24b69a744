"""Choose the next token from logits: greedy, or by temperature, top-k and top-p with a seed."""

from dataclasses import dataclass

import torch

from capture.errors import UsageError


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def check(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UsageError("--temperature must be 0 to 100")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UsageError("--top-k must be at least 0, --top-p above 0 and at most 1")

    @property
    def phase_names(self) -> tuple[str, ...]:
        """Methods of TokenSampler that choose a token, in order."""
        if self.temperature == 0:
            return ("sample_argmax",)
        return ("sample_phase1", "sample_phase2", "sample_phase3")


GREEDY = SamplingOptions()


class TokenSampler:
    """Holds the logits of a step while its phases narrow them down to `token`, one per sequence."""

    def __init__(self, sampling: SamplingOptions, device: torch.device) -> None:
        self._sampling = sampling
        self._random = torch.Generator(device).manual_seed(sampling.seed)
        self.logits = torch.empty(0)
        self.token = torch.empty(0, dtype=torch.long)
        self._ids = self.token
        self._probabilities = self.logits

    def sample_argmax(self) -> None:
        self.token = self.logits.argmax(-1)

    def sample_phase1(self) -> None:
        """Scale by temperature and keep the top k, best first."""
        vocab = self.logits.shape[-1]
        k = min(self._sampling.top_k or vocab, vocab)
        self._probabilities, self._ids = (self.logits.float() / self._sampling.temperature).topk(k)

    def sample_phase2(self) -> None:
        """Turn logits into probabilities and drop the tail beyond top p; the most likely always stays."""
        probabilities = self._probabilities.softmax(-1)
        if self._sampling.top_p < 1:
            preceding = probabilities.cumsum(-1) - probabilities
            probabilities = probabilities.masked_fill(preceding >= self._sampling.top_p, 0.0)
        self._probabilities = probabilities

    def sample_phase3(self) -> None:
        """Draw a token per sequence."""
        indices = torch.multinomial(self._probabilities, 1, generator=self._random)
        self.token = self._ids.gather(-1, indices)[:, 0]
