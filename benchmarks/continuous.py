"""Other engines that write our texts: transformers' `generate`, and its continuous batching (`generate_batch`).

Neither knows a schema, so that their verdicts run free, as a user of them would have them.
"""

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.generation import ContinuousBatchingConfig
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available, is_flash_attn_4_available

from benchmarks.folders import quantization
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.local import FREE_VERDICT_TOKENS, LocalEngine

MOST = 1024  # requests that generate_batch takes together unless it is told otherwise
BLOCK = 32  # tokens of a page on a CPU, where a step goes through the whole cache


def load_plain(model: LocalEngine) -> PreTrainedModel:
    """The same weights, without the adapter, as transformers and bitsandbytes load them."""
    return AutoModelForCausalLM.from_pretrained(
        model.loaded.folder,
        dtype=model.loaded.dtype,
        device_map=model.device,
        use_safetensors=True,
        quantization_config=quantization(model.loaded.dtype) if model.settings.quantize == "nf4" else None,
    ).eval()


def write_merged(model: LocalEngine, folder: Path) -> None:
    """Write the weights unpacked from 4 bits, the adapter merged into them, as any engine can read them."""
    network = load_plain(model)
    if model.settings.quantize == "nf4":
        network = network.dequantize()
    network = network.float()
    if model.adapter:
        network = PeftModel.from_pretrained(network, str(model.adapter)).merge_and_unload()
    network.to(model.loaded.dtype).save_pretrained(folder)
    model.loaded.tokenizer.save_pretrained(folder)


def best_attention() -> str:
    """The best attention that is installed: continuous batching wants a flash kernel."""
    versions = {3: is_flash_attn_3_available, 2: is_flash_attn_2_available, 4: is_flash_attn_4_available}
    return next((f"flash_attention_{version}" for version, is_there in versions.items() if is_there()), "sdpa")


class Peer(LocalEngine):
    """A model whose texts another engine writes; all else about it is the model's own."""

    stages = ("answers", "verdicts", "two rounds")  # that are measured
    starts_anew = False  # whether it is stopped between answers and verdicts

    def __init__(self, model: LocalEngine):
        vars(self).update(vars(model))  # with the adapter that the engine is given
        self.expected = 1  # requests of the largest batch to come, of which the first call may see a part alone

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

    def settings_of(self, max_tokens: int) -> GenerationConfig:
        """Greedy decoding, as transformers is told of it."""
        ends = {"eos_token_id": self.loaded.end_id, "pad_token_id": self.loaded.tokenizer.pad_token_id}
        return GenerationConfig(max_new_tokens=max_tokens, do_sample=False, **ends)

    def forget(self) -> None:
        """Drop what was read, before something is timed."""

    def stop(self) -> None:
        """Give its memory back."""


class Plain(Peer):
    """What `generate` writes, one prompt at a time, on the network as it is loaded."""

    stages = ("answers",)

    @cached_property
    def own_network(self) -> PreTrainedModel:
        network = load_plain(self)
        adapter = self.adapter
        return PeftModel.from_pretrained(network, str(adapter)).eval() if adapter else network

    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The tokens of greedy texts."""
        made = []
        for ids in self.loaded.encode(prompts, max_tokens):
            given = torch.tensor([ids], device=self.device)
            with torch.inference_mode():
                out = self.own_network.generate(
                    input_ids=given,
                    attention_mask=given.new_ones(given.shape),
                    generation_config=self.settings_of(max_tokens),
                )
            made.append(out[0, len(ids) :].tolist())
        return made


class Continuous(Peer):
    """What `generate_batch` writes, on the weights unpacked and with the adapter merged."""

    starts_anew = True  # pages are laid out for the prompts that come first

    @cached_property
    def own_network(self) -> PreTrainedModel:
        with tempfile.TemporaryDirectory() as folder:
            write_merged(self, Path(folder))
            network = AutoModelForCausalLM.from_pretrained(
                folder, dtype=self.loaded.dtype, device_map=self.device, attn_implementation=best_attention()
            )
        return network.eval()

    def write(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The tokens of greedy texts, by a manager that stays for the next call."""
        ids = self.loaded.encode(prompts, max_tokens)
        pages = self.pages(ids, max_tokens)
        torch.cuda.empty_cache()  # its pages take most of what is free
        made = self.own_network.generate_batch(
            ids, self.settings_of(max_tokens), pages, persistent_manager=True, max_new_tokens=max_tokens
        )
        if len(made) < len(ids) or any(one.error for one in made.values()):
            said = next((one.error for one in made.values() if one.error), "no word why")
            raise RuntimeError(f"generate_batch wrote {len(made)} of {len(ids)} texts: {said}")
        return [one.generated_tokens for one in made.values()]

    def pages(self, ids: Sequence[Sequence[int]], max_tokens: int) -> ContinuousBatchingConfig:
        """What it decides itself on a GPU for as many requests as are expected; on a CPU the pages that they take."""
        together = min(MOST, max(len(ids), self.expected))
        if self.device == "cuda":
            return ContinuousBatchingConfig(max_requests_per_batch=together)
        pages = together * max(-(-(len(one) + max_tokens) // BLOCK) + 1 for one in ids)
        return ContinuousBatchingConfig(block_size=BLOCK, num_blocks=pages, max_batch_tokens=max(map(len, ids)) * 2)

    def stop(self) -> None:
        """Give the cache's memory back; the next prompts lay it out anew."""
        if "own_network" in vars(self):  # or it never started
            self.own_network.destroy_cached_continuous_batching_manager()
