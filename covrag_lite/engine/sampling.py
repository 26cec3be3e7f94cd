"""How the next token is picked, the most probable one or a sample, and the text that results."""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from covrag_lite.engine.interface import Completion
from covrag_lite.engine.vocabulary import Vocabulary

TOP = 50  # sampling chooses among this many tokens, at temperature 1
# Rows and their logits (rows, vocabulary) -> logits of the picked tokens, and the tokens (rows).
Pick = Callable[[Sequence[int], torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def pick_likeliest(rows: Sequence[int], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the most probable token of each row."""
    return logits.max(1)


class Sampler:
    """Samples with Gumbel noise; each prompt has its own generator.

    So a sample does not depend on the rest of its batch.
    """

    def __init__(self, prompts: Sequence[str], number: int):
        self.generators = []
        for prompt in prompts:
            seed = hashlib.sha256(f"{number} {prompt}".encode()).digest()[:7]
            self.generators.append(torch.Generator().manual_seed(int.from_bytes(seed)))

    def __call__(
        self, rows: Sequence[int], logits: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample one token per row from the most probable ones."""
        values, tokens = logits.topk(min(TOP, logits.shape[1]), dim=1)  # (rows, TOP), sorted
        noise = []
        for row in rows:
            waits = torch.empty(values.shape[1]).exponential_(generator=self.generators[row])
            noise.append(waits.log())
        places = (values - torch.stack(noise).to(values)).argmax(1, keepdim=True)  # (rows, 1)
        return values.gather(1, places)[:, 0], tokens.gather(1, places)[:, 0]


def choose_pick(prompts: Sequence[str], sample: int | None) -> Pick:
    """Return how tokens are picked: greedily, or by the sample of this number."""
    return pick_likeliest if sample is None else Sampler(prompts, sample)


class Continuation(NamedTuple):
    """The tokens that follow a prompt, including the token that ends them, if there is one."""

    tokens: list[int]
    log_probabilities: list[float]  # of each token

    def add(self, token: int, log_probability: float) -> None:
        """Append a token."""
        self.tokens.append(token)
        self.log_probabilities.append(log_probability)

    def answer(self, vocabulary: Vocabulary, pick: Pick) -> Completion:
        """Return the text without its end, and its mean log-likelihood unless it was sampled."""
        tokens = [token for token in self.tokens if token != vocabulary.end_id]
        text = vocabulary.decode(tokens).strip()
        if pick is not pick_likeliest:
            return Completion(text)
        n_tokens = len(self.log_probabilities)
        mean = sum(self.log_probabilities) / n_tokens if n_tokens else 0.0
        return Completion(text, {"likelihood": float(f"{mean:.5g}")})

    def revised_question(self, vocabulary: Vocabulary) -> str:
        """Return the rest of a revised question after its opening quote, with the closing quote."""
        return vocabulary.decode(self.tokens).removesuffix('"') + '"'
