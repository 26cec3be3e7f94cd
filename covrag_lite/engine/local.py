"""The language model: a 4-bit base with its adapters, and what goes through it in one batch.

Greedy but for `sample`, so that the same prompts give the same texts. `completion` calls `batches`, `generate`,
`sample` and `judge`. The libraries behind a network take most of ten seconds to import: a run that finds all its texts
journaled never does.
"""

import copy
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite import config as configs
from covrag_lite.engine import weights as stores
from covrag_lite.engine.execution import choose_answering, find_device
from covrag_lite.prompts import DIRECT, LAYOUTS, SCHEMA
from covrag_lite.runs.progress import is_watched

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from covrag_lite.engine.decode_session import Steps
    from covrag_lite.engine.endpoint import Endpoint

QUANTIZE = ("nf4", "int8", "none")


def load_model(config: configs.Model, execution: str = "auto") -> "LanguageModel | Endpoint":
    """Find the weights and check the settings; the weights are read at the first prompt."""
    if config.quantize not in QUANTIZE:
        raise ValueError(f"quantize {config.quantize!r} is not known; use one of {', '.join(QUANTIZE)}")
    if config.batch_tokens < 0:
        raise ValueError(f"batch_tokens is {config.batch_tokens}; 0 lets the device decide, more is a number of tokens")
    if config.verdicts not in ("forced", "free"):
        raise ValueError(f"verdicts {config.verdicts!r} is not known; use 'forced' or 'free'")
    if config.layout not in LAYOUTS:
        raise ValueError(f"layout {config.layout!r} is not known; use one of {', '.join(LAYOUTS)}")
    if config.model.startswith("endpoint:"):
        from covrag_lite.engine.endpoint import Endpoint

        return Endpoint(config)
    return LanguageModel(config, stores.find_model(config.model), execution)


class LanguageModel:
    """A loaded model with its tokenizer; `weights` is a folder of safetensors or a GGUF file.

    `with_adapter` gives another view of the same base: one copy of the weights serves every system of a table.
    """

    def __init__(self, config: configs.Model, weights: Path, execution: str = "auto"):
        if config.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device {config.device!r} is not known; use 'auto', 'cpu' or 'cuda'")
        self.device = find_device() if config.device == "auto" else config.device
        self.execution = choose_answering(execution, self.device)
        self.config = config
        self.weights = weights
        self.adapter = None
        self.schema = SCHEMA
        self.base = self  # the view that holds tokenizer and network
        self.planned = {}  # tokens of the prompts whose batches were planned last: each is tokenised once
        # Texts written, tokens read and tokens written by all views: what a run has cost.
        self.used = Counter()

    def with_adapter(self, name: str) -> "LanguageModel":
        """This base with the trained adapter of that name ("rag", "cov", "cov-direct"), or bare for ""."""
        view = copy.copy(self)
        view.adapter = stores.find_adapter(self.config, name, self.base.weights_hash) if name else None
        view.schema = DIRECT if name == "cov-direct" else SCHEMA
        return view

    @property
    def dtype(self) -> "torch.dtype":
        """What it computes in: bf16 is several times slower than fp32 on CPUs without it, and memory is not short."""
        import torch

        return torch.bfloat16 if self.device == "cuda" else torch.float32

    @cached_property
    def weights_hash(self) -> str:
        return stores.hash_weights(self.weights)

    @property
    def fingerprint(self) -> str:
        """A hash of the weights themselves, adapter included: the same wherever they lie."""
        if not self.adapter:
            return self.base.weights_hash
        adapter = stores.hash_files(sorted(self.adapter.glob("adapter_model*.safetensors")))
        return f"{self.base.weights_hash}+{adapter}"

    @cached_property
    def folder(self) -> Path:
        return stores.convert_gguf(self.weights, self.weights_hash) if self.weights.is_file() else self.weights

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        return self.base._tokenizer

    @property
    def network(self) -> "torch.nn.Module":
        """The base network with this view's adapter switched on, and no other."""
        from peft import PeftModel

        base, network, wanted = self.base, self.base._network, self.adapter
        if wanted != base.__dict__.get("active"):
            name = str(wanted).replace(".", "-")  # a dot would split peft's names
            if "adapters" not in network.__dict__:  # kept beside the network they are in, and gone with it
                network.__dict__["adapters"] = PeftModel.from_pretrained(network, str(wanted), adapter_name=name)
            adapters = network.__dict__["adapters"]
            if wanted and name not in adapters.peft_config:
                adapters.load_adapter(str(wanted), adapter_name=name)
            if wanted:
                adapters.base_model.enable_adapter_layers()
                adapters.set_adapter(name)
            else:
                adapters.base_model.disable_adapter_layers()
            base.active = wanted
        return network  # peft has put its layers into this very network

    @property
    def quick_network(self) -> "torch.nn.Module":
        """The same network made ready to answer; training takes `network`, and keeps its 4 bits."""
        from covrag_lite.engine import prepare as serving

        network = self.network
        ready = network.__dict__.setdefault("ready", set())
        if self.adapter not in ready:  # each adapter brings weights of its own
            serving.quicken(network, self.device)
            network.__dict__.pop("steps", None)  # recorded with weights that have moved
            ready.add(self.adapter)
        return network

    @property
    def steps(self) -> "Steps | None":
        """The network's decoding steps of fixed shapes, where they are recorded as graphs."""
        from covrag_lite.engine.decode_session import steps_of

        return steps_of(self.quick_network, self.device, self.execution) if "graph" in self.execution else None

    @cached_property
    def _tokenizer(self):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.folder, padding_side="left")
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        return tokenizer

    @cached_property
    def _network(self):
        import torch
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig
        from transformers.utils import logging

        if not is_watched():
            logging.disable_progress_bar()

        quantization = {
            "nf4": BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=self.dtype,
            ),
            "int8": BitsAndBytesConfig(load_in_8bit=True),
            "none": None,
        }[self.config.quantize]
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_pretrained(
            self.folder,
            dtype=self.dtype,
            device_map=self.device,
            use_safetensors=True,
            quantization_config=quantization,
        ).eval()

    @cached_property
    def end_id(self) -> int:
        """The token that ends the model's turn, from its chat template: a tokenizer's own end is not always that."""
        if not self.tokenizer.chat_template:
            return self.tokenizer.eos_token_id
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "§"}]
        after = self.tokenizer.apply_chat_template(turns, tokenize=False).split("§")[-1]
        return self.tokenizer(after, add_special_tokens=False).input_ids[0] if after else self.tokenizer.eos_token_id

    def render(self, prompt: str) -> str:
        """The prompt as this model expects a user's turn, where its tokenizer knows chats."""
        if not self.tokenizer.chat_template:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        return self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)

    def encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Each prompt's tokens, checked to leave `room` for more in the model's context."""
        planned = self.base.planned
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in planned))
        made = dict(zip(new, self._tokenise(new))) if new else {}
        ids = [planned[prompt].tolist() if prompt in planned else list(made[prompt]) for prompt in prompts]
        length = max(map(len, ids)) + room
        limit = self.base._network.config.max_position_embeddings
        if length > limit:
            raise ValueError(
                f"a prompt with its answer takes {length} tokens, "
                f"but {self.config.model!r} has room for {limit}; lower k"
            )
        return ids

    def _tokenise(self, prompts: Sequence[str]) -> list[list[int]]:
        rendered = [self.render(prompt) for prompt in prompts]
        return self.tokenizer(rendered, add_special_tokens=not self.tokenizer.chat_template).input_ids

    @cached_property
    def fitting_tokens(self) -> int:
        from covrag_lite.engine import prepare as serving

        return serving.fitting_tokens(self.quick_network, self.device)

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """The prompts in batches that fit into memory, those of like length together; `room` is for what is written."""
        from covrag_lite.engine import prepare as serving

        ids = self.encode(prompts, room) if prompts else []
        self.base.planned = {prompt: array("i", one) for prompt, one in zip(prompts, ids)}
        lengths = {prompt: len(one) for prompt, one in self.base.planned.items()}
        return serving.plan(lengths, room, self.config.batch_tokens or self.base.fitting_tokens)

    def answer(self, prompts: Sequence[str], max_tokens: int) -> list[tuple[str, dict[str, float]]]:
        """One batch of prompts, completed greedily, each with the mean logarithmic probability of its tokens."""
        from covrag_lite.engine import decoding
        from covrag_lite.engine import prepare as serving

        return self._counted(serving.fit(lambda some: decoding.write_answers(self, some, max_tokens), prompts))

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """The texts of `answer` alone."""
        return [text for text, _ in self.answer(prompts, max_tokens)]

    def sample(self, prompts: Sequence[str], max_tokens: int, number: int) -> list[str]:
        """One batch of prompts, each completed by chance; the same number gives the same texts again."""
        from covrag_lite.engine import decoding
        from covrag_lite.engine import prepare as serving

        made = serving.fit(lambda some: decoding.write_samples(self, some, max_tokens, number), prompts)
        self._counted([(text,) for text in made])
        return made

    def judge(self, prompts: Sequence[str]) -> list[tuple[str, dict[str, float] | None]]:
        """One batch of verification prompts, each completed to a verdict; a forced one has probabilities beside it."""
        if self.config.verdicts == "free":
            return [(text, None) for text in self.generate(prompts, 96 + self.config.max_revised_tokens)]
        from covrag_lite.engine import decoding
        from covrag_lite.engine import prepare as serving

        return self._counted(serving.fit(lambda some: decoding.write_verdicts(self, some), prompts))

    def verify(self, prompts: Sequence[str]) -> list[str]:
        """The texts of `judge` alone."""
        return [text for text, _ in self.judge(prompts)]

    def generate_and_judge(
        self, prompts: Sequence[str], thens: Sequence[Callable[[str], str]], max_tokens: int
    ) -> list[tuple[str, dict[str, float], str, dict[str, float]]]:
        """What `answer` and `judge` make of a batch, in one go; `thens` make the answers' verification prompts."""
        from covrag_lite.engine import decoding
        from covrag_lite.engine import prepare as serving

        then = dict(zip(prompts, thens))

        def write(some: Sequence[str]) -> list[tuple[str, dict[str, float], str, dict[str, float]]]:
            return decoding.write_both(self, some, [then[prompt] for prompt in some], max_tokens)

        return self._counted(serving.fit(write, prompts))

    def _counted(self, made: list) -> list:
        """What was written, texts or tuples with texts, its tokens counted; those read are counted as they are."""
        parts = [(one,) if isinstance(one, str) else one for one in made]
        texts = [part for one in parts for part in one if isinstance(part, str)]
        if texts:
            self.used["requests"] += len(texts)
            self.used["completion_tokens"] += sum(map(len, self.tokenizer(texts, add_special_tokens=False).input_ids))
        return made
