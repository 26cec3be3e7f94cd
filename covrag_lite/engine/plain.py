"""The plain engine: model="plain:<model>", which uses only transformers and peft.

It works with any architecture: one prompt, one token and one training sample at a time, with the
network's own layers. It is slow, and short enough to check by reading. Tests compare the fast
engine with it.
"""

from collections.abc import Collection, Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.config import Model, Training
from covrag_lite.engine import weights as stores
from covrag_lite.engine.decoding import Dice, Pick, Written, greedily
from covrag_lite.engine.interface import Completion, Schema, Shape
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.slots import QUOTES, Choices, Filled, probabilities_of, slots_of
from covrag_lite.engine.training import Trainee, build_plain
from covrag_lite.prompts import VERDICT_ROOM

PREFIX = "plain:"


def load(settings: Model, execution: str) -> "PlainEngine":
    """Build the plain engine of any model that the fast one accepts; it always runs eagerly."""
    return PlainEngine(settings, stores.find_model(settings.model.removeprefix(PREFIX)), "eager")


class Reader:
    """A network that reads one prompt, in several parts."""

    def __init__(self, network: PreTrainedModel):
        self.network = network
        self.cache = DynamicCache(config=network.config)

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """Read these tokens and return the logits of the next one: (vocabulary)."""
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
    ) -> Written:
        """Write the continuation of these tokens."""
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
        return Written(tokens, logs)


class PlainEngine(LocalEngine):
    """A model on this machine that writes one token at a time, with the fast engine's weights."""

    prefix = PREFIX

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint with a mark, so that the journal separates the two engines."""
        return f"plain {super().fingerprint}"

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Put each prompt into a batch of its own."""
        return [[prompt] for prompt in prompts]

    def _complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None) -> list[Completion]:
        made = []
        for prompt, ids in zip(prompts, self._encode(prompts, max_tokens)):
            pick = greedily if sample is None else Dice([prompt], sample)
            written = Reader(self.network).write(ids, {self.loaded.end_id}, max_tokens, pick)
            made.append(written.answer(self.loaded, pick))
        return made

    def _fill(self, prompts: Sequence[str], schema: Schema, max_tokens: int) -> list[Completion]:
        encoded = self._encode(prompts, VERDICT_ROOM + max_tokens)
        return [self._verdict(ids, schema, max_tokens) for ids in encoded]

    def _verdict(self, pending: list[int], schema: Schema, max_tokens: int) -> Completion:
        """Write one verdict: at each slot the most probable choice, judged by its first token."""
        loaded, reader = self.loaded, Reader(self.network)
        slots, closing = slots_of(schema)
        choices = Choices(slots, loaded.piece, self.settings.model)
        filled, text = Filled([], []), ""
        for slot in slots:
            logits = reader.read(pending + loaded.piece(slot.before))
            choice, known = choices.choose(slot, filled.path, choices.chances(logits)[slot.choices].tolist())
            filled.path.append(choice)
            filled.chances.append(known)
            text += slot.before + choice
            pending = list(loaded.piece(choice))
        if choice == QUOTES[0]:
            written = reader.write(pending, loaded.quoted.ends, max_tokens, forbidden=loaded.quoted.forbidden)
            text += written.revised_question(loaded)
        return Completion(text + closing, probabilities_of(slots, filled.chances))

    def _adapt(self, network: PreTrainedModel, settings: Training, shape: Shape) -> Trainee:
        return build_plain(network, settings)
