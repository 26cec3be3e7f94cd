"""The plain engine: model="plain:<model>", by transformers and peft alone, for any architecture.

One prompt and one token at a time, by the networks' own layers: slow, and short enough to see that it is right. The
fast engine is compared with it.
"""

from collections.abc import Collection, Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.config import Model
from covrag_lite.engine import weights as stores
from covrag_lite.engine.decoding import Dice, Pick, greedily
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.local import FREE_VERDICT_TOKENS, LocalEngine
from covrag_lite.engine.slots import QUOTES, Choices, Filled, probabilities_of, slots_of
from covrag_lite.prompts import VERDICT_ROOM

PREFIX = "plain:"


def load(settings: Model, execution: str) -> "PlainEngine":
    """The plain engine of any model that the fast one takes; it runs eagerly."""
    return PlainEngine(settings, stores.find_model(settings.model.removeprefix(PREFIX)), "eager")


class Reader:
    """A network that reads one prompt on and on."""

    def __init__(self, network: PreTrainedModel):
        self.network = network
        self.cache = DynamicCache(config=network.config)

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits of what follows these further tokens: (vocabulary)."""
        given = torch.tensor([list(ids)], device=self.network.device)
        out = self.network(input_ids=given, past_key_values=self.cache, use_cache=True)
        return out.logits[0, -1].float()

    def write(
        self,
        ids: Sequence[int],
        ends: Collection[int],
        limit: int,
        pick: Pick = greedily,
        forbidden: torch.Tensor | None = None,
    ) -> tuple[list[int], list[float]]:
        """The tokens that follow these, with the one that ends them, and each one's logarithmic probability."""
        tokens, logs = [], []
        while len(tokens) < limit:
            logits = self.read(tokens[-1:] or ids)
            if forbidden is not None:
                logits = logits.masked_fill(forbidden, float("-inf"))
            picked, token = pick([0], logits[None])
            tokens.append(int(token))
            logs.append((picked[0] - logits.logsumexp(0)).item())
            if tokens[-1] in ends:
                break
        return tokens, logs


class PlainEngine(LocalEngine):
    """A model on this machine whose texts are written in the plainest way; weights and adapters are as in the fast."""

    prefix = PREFIX

    @property
    def fingerprint(self) -> str:
        """That of the weights, marked: the journal keeps both engines' texts apart."""
        return f"plain {super().fingerprint}"

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Every prompt by itself."""
        return [[prompt] for prompt in prompts]

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Each prompt completed greedily, with the mean logarithmic probability of its tokens; or by chance."""
        return self._fit(lambda some: [self._complete(prompt, max_tokens, sample) for prompt in some], prompts)

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Verdicts, forced into the schema with the probabilities behind each, or free without one."""
        if schema is None:
            return [Completion(one.text) for one in self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)]
        return self._fit(lambda some: [self._fill(prompt, schema, max_tokens) for prompt in some], prompts)

    def _complete(self, prompt: str, max_tokens: int, sample: int | None) -> Completion:
        loaded, (ids,) = self.loaded, self._encode([prompt], max_tokens)
        pick = greedily if sample is None else Dice([prompt], sample)
        tokens, logs = Reader(self.network).write(ids, {loaded.end_id}, max_tokens, pick)
        written = [token for token in tokens if token != loaded.end_id]
        text = loaded.tokenizer.decode(written, skip_special_tokens=True).strip()
        mean = sum(logs) / len(logs) if logs else 0.0
        return Completion(text, {"likelihood": float(f"{mean:.5g}")} if sample is None else None)

    def _fill(self, prompt: str, schema: Schema, max_tokens: int) -> Completion:
        """One verdict: at each slot in turn the likeliest of its choices, by their first tokens."""
        loaded, (pending,) = self.loaded, self._encode([prompt], VERDICT_ROOM + max_tokens)
        reader = Reader(self.network)
        slots, closing = slots_of(schema)
        choices = Choices(slots, loaded.piece, self.settings.model)
        filled, text = Filled([], []), ""
        for slot in slots:
            logits = reader.read(pending + loaded.piece(slot.before))[choices.tokens].double()
            chances = logits[choices.columns[slot.choices]].softmax(0).tolist()
            choice, known = choices.choose(slot, filled.path, chances)
            filled.path.append(choice)
            filled.chances.append(known)
            text += slot.before + choice
            pending = list(loaded.piece(choice))
        if choice == QUOTES[0]:
            quoted = loaded.quoted
            tokens, _ = reader.write(pending, quoted.ends, max_tokens, forbidden=quoted.forbidden)
            text += loaded.tokenizer.decode(tokens, skip_special_tokens=True).removesuffix('"') + '"'
        return Completion(text + closing, probabilities_of(slots, filled.chances))
