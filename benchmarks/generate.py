"""Other engines that write our texts, and the first of them, transformers' `generate`: its verdicts run free."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedModel

from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.local import FREE_VERDICT_TOKENS, LocalEngine


def write_merged(model: LocalEngine, folder: Path) -> None:
    """Write the weights unpacked from 4 bits, the adapter merged into them, as any engine can read them."""
    network = model.loaded.read()
    if model.settings.quantize == "nf4":
        network = network.dequantize()
    network = network.float()
    if model.adapter:
        network = PeftModel.from_pretrained(network, str(model.adapter)).merge_and_unload()
    network.to(model.loaded.dtype).save_pretrained(folder)
    model.loaded.tokenizer.save_pretrained(folder)


class Peer(LocalEngine):
    """A model whose texts another engine writes; all else about it is the model's own."""

    stages = ("answers", "verdicts", "two rounds")  # that are measured

    def __init__(self, model: LocalEngine):
        vars(self).update(vars(model))  # with the adapter that the engine is given

    def with_adapter(self, name: str) -> "Peer":
        """The same: the adapter `cov` is the only one that is measured."""
        return self

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """One batch: how many rows go together is for the engine to decide."""
        return [list(prompts)] if prompts else []

    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The tokens of greedy texts."""
        raise NotImplementedError

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Greedy texts, without the probabilities behind them."""
        made = self.write(prompts, max_tokens)
        texts = self.loaded.tokenizer.batch_decode(made, skip_special_tokens=True)
        return [Completion(text.strip()) for text in texts]

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Verdicts that run free."""
        return self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)

    def forget(self) -> None:
        """Drop what was read, before something is timed."""

    def stop(self) -> None:
        """Give its memory back."""


class Plain(Peer):
    """What `generate` writes, one prompt at a time, on the network as it is loaded."""

    stages = ("answers",)

    @cached_property
    def own_network(self) -> PreTrainedModel:
        network = self.loaded.read()
        return PeftModel.from_pretrained(network, str(self.adapter)).eval() if self.adapter else network

    @torch.inference_mode()
    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The tokens of greedy texts."""
        ends = {"eos_token_id": self.loaded.end_id, "pad_token_id": self.loaded.tokenizer.pad_token_id}
        greedy = GenerationConfig(max_new_tokens=max_tokens, do_sample=False, **ends)
        made = []
        for ids in self.loaded.encode(prompts, max_tokens):
            given = torch.tensor([ids], device=self.device)
            out = self.own_network.generate(
                input_ids=given, attention_mask=given.new_ones(given.shape), generation_config=greedy
            )
            made.append(out[0, len(ids) :].tolist())
        return made
