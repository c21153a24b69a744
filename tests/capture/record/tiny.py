"""A plain PyTorch program that knows nothing of tracetui: a tiny model decodes, or trains."""

import sys

import torch
from torch import Tensor, nn

LAYERS, WIDTH, WORDS = 3, 32, 100


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return self.o_proj(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.self_attn, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.norm(x))
        return x + self.mlp(x)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lm_head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, *, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def decode(model: nn.Module) -> None:
    with torch.inference_mode():
        model(input_ids=torch.randint(0, WORDS, (1, 8)))
        for _ in range(12):
            model(input_ids=torch.randint(0, WORDS, (1, 1)))


def train(model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        words = torch.randint(0, WORDS, (2, 16))
        loss = nn.CrossEntropyLoss()(model(input_ids=words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = Tiny()
    train(model.train()) if sys.argv[1] == "train" else decode(model.eval())
    print("done")
    if sys.argv[1] == "fail":
        raise SystemExit(7)
