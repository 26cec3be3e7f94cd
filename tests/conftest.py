"""Fixtures built from scratch: scripted model, small corpus, tiny Llama, tiny encoder."""

import json
import math
import os
import shutil
from collections import Counter

# Set before torch is imported, here and by the notebooks: several tests run at once, and their
# threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests compare exact numbers, and a GPU rounds differently; its own tests run only on request.
if not os.environ.get("COVRAG_CUDA_TESTS"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest  # noqa: E402

from covrag_lite import config, prompts
from covrag_lite.engine import load_engine
from covrag_lite.engine.interface import Completion
from covrag_lite.records import Passage, Question
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems import evaluate

BORN = "Where was Edith Marrow born?"
WORDS = "who where why born author lantern river hills kite fair novel copper 1893 town".split()
PROMPTS = [
    " ".join(WORDS[i % 14] + WORDS[i * i % 14] for i in range(n, 2 * n + 3)) for n in range(1, 13)
]


def write_jsonl(path, rows):
    """Write rows as a JSONL file, create its folder, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def passages():
    texts = {
        "Copper Lanterns": "The Copper Lanterns is a novel by Edith Marrow, published in 1893.",
        "Edith Marrow": "Edith Marrow was born in Stonebridge in 1861 and wrote novels.",
        "Aldermere": "Aldermere is a town of 4,200 people on the River Stell.",
        "River Stell": "The Stell rises in the Harrow Hills and is 71 kilometres long.",
        "Kite Fair": "The Kite Fair of Aldermere takes place every May.",
        "Harrow Hills": "The Harrow Hills are low hills known for their sheep.",
    }
    return [Passage(f"p{i}", title, text) for i, (title, text) in enumerate(texts.items())]


@pytest.fixture
def questions():
    return [
        Question("q1", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",)),
        Question(
            "q2",
            "nq",
            "wher was edit marow born",
            ("Stonebridge",),
            ("p1",),
            BORN,
            "birthplace+misspelt",
        ),
        Question("q3", "webq", "how long is the River Stell?", ("71 kilometres", "71 km"), ("p3",)),
        Question("q4", "webq", "what is it?", ("---",)),
    ]


class ScriptedModel:
    """An engine that answers by a rule from the prompt and remembers its prompts."""

    fingerprint = weights_hash = "scripted"
    device = "cpu"
    at_once = 1
    adapter = weights = None

    def __init__(self, settings=None):
        self.settings = settings or config.Model()
        self.asked = []
        self.used = Counter()

    def with_adapter(self, name):
        return self

    def batches(self, prompts, room):
        longest_first = sorted(prompts, key=lambda prompt: (-len(prompt), prompt))
        return [longest_first[i : i + 2] for i in range(0, len(prompts), 2)]

    def complete(self, prompts, max_tokens, sample=None):
        self.asked += prompts
        if sample is not None:
            return [
                Completion(f"[1] sample {sample} of {len(prompt)} letters") for prompt in prompts
            ]
        return [
            Completion(f"Edith Marrow[1] was asked {len(prompt)} letters") for prompt in prompts
        ]

    def fill(self, texts, schema, max_tokens):
        self.asked += texts
        bad = prompts.render_verdict((0.1, 0.1, 0.5, 0.5, 0.9, 0.9), "false", BORN)
        good = prompts.render_verdict((0.9, 0.9, 0.9, 0.9, 0.1, 0.9), "true", "")
        return [Completion(bad if "marow" in prompt else good) for prompt in texts]

    def count_tokens(self, prompts, texts):
        return [(math.nan, math.nan)] * len(texts)


@pytest.fixture
def scripted():
    return ScriptedModel()


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A project folder with recorded tables. Tests must not change it; they copy it."""
    import toy_project

    root = tmp_path_factory.mktemp("project")
    toy_project.build(root)
    return root


@pytest.fixture(scope="session")
def predictions(tmp_path_factory):
    """The predictions of all systems for the toy's questions."""
    import toy

    config, resources = toy.stage(tmp_path_factory.mktemp("toy"), systems=toy.SYSTEMS)
    return evaluate.run(config, resources, toy.QUESTIONS)


@pytest.fixture(scope="session")
def frame(predictions):
    return to_frame(predictions)


@pytest.fixture
def cov(predictions):
    return [p for p in predictions if p.system == "CoV-RAG"]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """The folder of a Llama with a few thousand random weights and a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    raw = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    raw.decoder = decoders.ByteLevel()
    corpus = [
        prompts.CRITERIA,
        prompts.STEPS,
        prompts.render_verdict([0.5] * 6, "unclear", "Who was it?"),
    ] * 3
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = {"special_tokens": ["<eos>"], "show_progress": False, "initial_alphabet": letters}
    raw.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=500, **special))
    PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<eos>", pad_token="<eos>"
    ).save_pretrained(folder)
    build_network("Llama").save_pretrained(folder)
    return folder


def build_network(family, **changes):
    """A two-layer network of an architecture, with random weights and grouped keys."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "initializer_range": 0.3,
    }
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    tokens = {"vocab_size": 500, "eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}
    windows = {"Mistral": {"sliding_window": None}, "Starcoder2": {"sliding_window": 4096}}
    changes |= windows.get(family, {})
    settings = getattr(transformers, f"{family}Config")(**sizes | heads | tokens | changes)
    network = getattr(transformers, f"{family}ForCausalLM")(settings).eval()
    for name, weight in network.named_parameters():
        if name.endswith("bias"):  # zero by default
            torch.nn.init.normal_(weight, std=0.3)
    return network


def add_adapter(network, **changes):
    """The network with a random adapter on all its linear layers."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    lora = {
        "r": 4,
        "target_modules": "all-linear",
        "init_lora_weights": False,
        "task_type": "CAUSAL_LM",
    }
    return get_peft_model(network, LoraConfig(**lora | changes))


def load_tiny(folder, execution="auto", **settings):
    """The engine of a model folder on the CPU."""
    return load_engine(
        config.Model(model=str(folder), max_revised_tokens=6, device="cpu", **settings), execution
    )


@pytest.fixture
def family_folder(family, tiny_folder, tmp_path):
    """The folder of a tiny network; the test's parameter names its architecture."""
    without = shutil.ignore_patterns("*.safetensors", "config.json")
    folder = shutil.copytree(tiny_folder, tmp_path / family, ignore=without)
    build_network(family).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_adapters(tiny_folder, tmp_path_factory):
    """Two random adapters of the tiny Llama; "cov" changes only some of its layers."""
    folder = tmp_path_factory.mktemp("adapters.d")
    for name, layers in {"rag": "all-linear", "cov": ["q_proj", "up_proj"]}.items():
        add_adapter(build_network("Llama"), target_modules=layers).save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory):
    """The folder of a BERT with a few thousand random weights and a character tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    letters = ["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789.,"]
    raw = Tokenizer(
        models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="[UNK]")
    )
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_max_length": 128}
    PreTrainedTokenizerFast(tokenizer_object=raw, **special).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    BertModel(
        BertConfig(vocab_size=len(letters), max_position_embeddings=128, **sizes)
    ).save_pretrained(folder)
    return folder
