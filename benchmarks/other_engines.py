"""Other engines that write our texts, and the first of them: `generate` of transformers.

Its verdicts are free, not forced into the schema.
"""

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedModel

from covrag_lite.engine.backbone import FREE_VERDICT_TOKENS
from covrag_lite.engine.fast.local import LocalEngine
from covrag_lite.engine.interface import Completion, Schema


def write_merged(model: LocalEngine, folder: Path) -> None:
    """Write the weights unpacked from 4 bits, with the adapter merged, for any engine to read."""
    network = model.backbone.network.read()
    if model.settings.quantize == "nf4":
        network = network.dequantize()
    network = network.float()
    if model.adapter:
        network = PeftModel.from_pretrained(network, str(model.adapter)).merge_and_unload()
    network.to(model.backbone.network.dtype).save_pretrained(folder)
    model.backbone.vocabulary.tokenizer.save_pretrained(folder)


class OtherEngine(LocalEngine):
    """A model whose texts are written by another engine."""

    stages = ("answers", "verdicts", "two rounds")  # what is measured

    def __init__(self, model: LocalEngine):
        vars(self).update(vars(model))  # including the adapter

    def with_adapter(self, name: str) -> "OtherEngine":
        """Return the same engine: only the adapter `cov` is measured."""
        return self

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Return one batch: the engine decides how many rows to compute together."""
        return [list(prompts)] if prompts else []

    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Write greedy texts as tokens."""
        raise NotImplementedError

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Write greedy texts, without probabilities."""
        tokens = self.write(prompts, max_tokens)
        texts = self.backbone.vocabulary.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [Completion(text.strip()) for text in texts]

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write free verdicts."""
        return self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the engine has taken so far."""
        return time.process_time()

    def forget(self) -> None:
        """Drop cached prompts before a measurement."""

    def stop(self) -> None:
        """Free the engine's memory."""


class GenerateEngine(OtherEngine):
    """Texts written by `generate`, one prompt at a time, on the network as loaded."""

    stages = ("answers",)

    @cached_property
    def adapted_network(self) -> PreTrainedModel:
        """The network as transformers, peft and bitsandbytes load it."""
        network = self.backbone.network.read()
        if not self.adapter:
            return network
        return PeftModel.from_pretrained(network, str(self.adapter)).eval()

    @torch.inference_mode()
    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Write greedy texts as tokens."""
        greedy = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=self.end_id,
            pad_token_id=self.backbone.vocabulary.tokenizer.pad_token_id,
        )
        texts = []
        for ids in self.prepared.encode(prompts, max_tokens):
            prompt = torch.tensor([ids], device=self.device)
            output = self.adapted_network.generate(
                input_ids=prompt,
                attention_mask=prompt.new_ones(prompt.shape),
                generation_config=greedy,
            )
            texts.append(output[0, len(ids) :].tolist())
        return texts
