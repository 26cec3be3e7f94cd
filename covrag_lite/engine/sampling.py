"""Which token follows: the likeliest one, or one drawn by chance, the same for the same prompt on every run."""

import hashlib
from collections.abc import Callable, Sequence

import torch

# Rows, their logits (rows, vocabulary) -> the logits of the tokens that were picked, and the tokens (rows).
Pick = Callable[[Sequence[int], torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
TOP = 50  # tokens that a draw is among; the temperature is 1


def greedily(rows: Sequence[int], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest token of each row."""
    return logits.max(1)


class Dice:
    """Draws by Gumbel noise from a generator of each prompt's own, so that no draw depends on the rest of its batch."""

    def __init__(self, prompts: Sequence[str], number: int):
        self.generators = []
        for prompt in prompts:
            seed = hashlib.sha256(f"{number} {prompt}".encode()).digest()[:7]
            self.generators.append(torch.Generator().manual_seed(int.from_bytes(seed)))

    def __call__(self, rows: Sequence[int], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One token of each row, drawn from the likeliest ones by their probabilities."""
        values, tokens = logits.topk(min(TOP, logits.shape[1]), dim=1)  # (rows, TOP), sorted
        noise = [torch.empty(values.shape[1]).exponential_(generator=self.generators[row]).log() for row in rows]
        places = (values - torch.stack(noise).to(values)).argmax(1, keepdim=True)  # (rows, 1)
        return values.gather(1, places)[:, 0], tokens.gather(1, places)[:, 0]
