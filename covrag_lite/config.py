"""All parameters of a run and their default values, grouped into frozen dataclasses.

Everything that a user can set is here; constants of the method are at the top of their modules. The
parameters cell of a notebook uses the same names, without the groups; a test compares their values.
`from_notebook(globals())` reads them back. It stops at an unknown name or a wrong type, because
papermill only warns about them.

Example:
    >>> from covrag_lite.config import Config
    >>> config = Config().change(n_questions=10, retriever="dense")
    >>> config.retrieval.retriever
    'dense'
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from covrag_lite.loader import plugins
from covrag_lite.parameters import ParameterError, read_parameters

# Relative paths start at the clone's root: papermill and JupyterLab run in different folders.
ROOT = Path(__file__).resolve().parent.parent
ALL = ("all",)  # every question set that the data contains


@dataclass(frozen=True)
class World:
    """The fictional world: questions and passages that are generated from a seed (data/world/)."""

    # Random seed of the world. The same seed always gives identical questions and passages.
    seed: int = 1
    # Size of the corpus in passages, from 1,000 to 1,000,000.
    n_passages: int = 2400
    # Number of test, training and validation questions. Test questions are counted per set (there
    # are four sets), training and validation questions over all sets together.
    n_world: tuple[int, ...] = (150, 1200, 200)
    # Share of the questions, from 0 to 1, that has each kind of difficulty. A kind that is not
    # listed keeps its default share.
    traps: tuple[str, ...] = (
        "misspelt 0.12",  # the question contains misspelt words
        "cut_off 0.07",  # the end of the question is missing
        "vague 0.07",  # the question names its subject only vaguely
        "namesakes 0.12",  # several entities share the name in the question
        "synonyms 0.12",  # the question and its gold passage use different words
        "stale 0.1",  # outdated passages give an old answer
        "contradicting 0.1",  # unreliable passages contradict the gold passage
    )

    def __post_init__(self) -> None:
        """Fill in all shares: equal worlds compare equal, and a manifest lists every share."""
        shares = {name: float(share) for name, share in map(str.split, World.traps)}
        for trap in self.traps:
            name, _, share = trap.partition(" ")
            if name not in shares or not re.fullmatch(r"-?\d*\.?\d+", share):
                raise ParameterError(
                    f"{trap!r} in parameter 'traps' is not valid: it must be one of "
                    f"{', '.join(shares)}, "
                    "followed by a space and its share from 0 to 1, for example 'vague 0.07'"
                )
            shares[name] = float(share)
        traps = tuple(f"{name} {share}" for name, share in shares.items())
        object.__setattr__(self, "traps", traps)

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of each kind of difficulty, by its name in `traps`."""
        return {name: float(share) for name, share in map(str.split, self.traps)}


@dataclass(frozen=True)
class Data:
    """The questions to answer and the corpus to search (data/)."""

    # "world" (the fictional world), "hub" (public question sets from the Hugging Face hub), or the
    # path of a folder with your own questions and documents; data/folder.py describes its files.
    data: str = "world"
    # "all", or the names of some question sets. The world has search, entity, complex and quiz.
    datasets: tuple[str, ...] = ALL
    # Which questions: "test", "validation" or "train".
    split: str = "test"
    # Number of questions per set; the first ones are used. 0 means all.
    n_questions: int = 2
    # The corpus of "hub", or another corpus for a folder: a name from data/corpora.toml or the path
    # of a JSONL file. Empty means the folder's own corpus.
    corpus: str = ""
    # Number of test questions sampled from each set of "hub"; the paper uses 400. 0 means all.
    sample: int = 400
    # Which test questions are sampled from a set of "hub": "paper" (the paper's own 400 of nq and
    # webq; other sets are sampled at random, because the paper's samples are not published) or
    # "random".
    sampling: str = "paper"
    # The question that notebooks/explore.ipynb follows: a set and a number counted from 0, such as
    # "complex 1", or the text of your own question.
    question: str = "complex 1"


@dataclass(frozen=True)
class Model:
    """The language model and how it decodes (engine/)."""

    # "smollm2-135m" (installed by `make setup`), a Hugging Face id (optionally with @<revision>),
    # a local folder, a .gguf file, or "endpoint:<name>" for a model behind a server with the OpenAI
    # API.
    model: str = "smollm2-135m"
    # Folder of the trained adapters. "auto" uses results/adapters/<model> if it exists, "none" uses
    # the base model. "served": the endpoint serves each adapter as a separate model.
    adapters: str = "auto"
    # Precision of the base model's weights: "nf4" (4 bits, double quantisation) or "none".
    quantize: str = "nf4"
    # "auto" (CUDA if available), "cpu" or "cuda".
    device: str = "auto"
    # Maximum length of an answer in tokens. Gold answers have a few words.
    max_answer_tokens: int = 40
    # Maximum length of a revised question in tokens.
    max_revised_tokens: int = 32
    # Order of the parts of an adapter's prompt: "shared" (criteria first, answer last) or "paper".
    layout: str = "shared"
    # "forced": decoding follows the verdict's schema, so every verdict parses. "free": the model
    # writes verdicts without this constraint.
    verdicts: str = "forced"

    @property
    def short(self) -> str:
        """The model's name without folder, organisation, revision and file ending."""
        return Path(self.model.partition("@")[0]).name.removesuffix(".gguf")


@dataclass(frozen=True)
class Retrieval:
    """The retriever (retrieval/)."""

    # "bm25" (words), "dense" (embeddings), "fused" (both), "engine" or "engine:<folder>" (full-text
    # search in LanceDB), "web" or "web-<provider>" with the provider ddgs, serper or searxng.
    retriever: str = "bm25"
    # Sentence encoder of "dense", "fused" and "web": "minilm" (all-MiniLM-L6-v2), a Hugging Face id
    # or a local folder.
    encoder: str = "minilm"
    # Number of passages retrieved per query; the paper uses 5.
    k: int = 5
    # Folder with saved web search results. A saved result is always used instead of a new search.
    snapshot: str = "runs/web"
    # "yes" searches the web for queries that are not in the snapshot and saves the results there;
    # "no" stops at such a query.
    live: str = "no"
    # The retrievers that notebooks/table6.ipynb compares.
    retrievers: tuple[str, ...] = ("bm25", "dense", "fused")

    @property
    def kind(self) -> str:
        """The retriever's name without its provider or folder."""
        return self.retriever.partition(":")[0].partition("-")[0]

    @property
    def has_corpus(self) -> bool:
        """Whether the retriever searches the data's passages, and not the web."""
        return self.kind not in plugins("corpus-free retriever")


@dataclass(frozen=True)
class Chain:
    """The systems to run and the rules of the chain of verification (systems/, method.py)."""

    # Names of the systems to run; systems/__init__.py lists all of them.
    systems: tuple[str, ...] = (
        "closed-book",
        "RAG",
        "Start-Revise",
        "RAG trained",
        "CoV-RAG-S",
        "CoV-RAG",
    )
    # When to search again: "revision" (whenever there is a revised question, the paper's default)
    # or "thresholds" (on the verdict's scores, footnote 1 of the paper).
    sigma: str = "revision"
    # Which round's answer to return: "last" (as in the paper), "likelier" (the answer with the
    # higher likelihood) or "weighed" (the score-combined answer: likelihood + 3 × verifier score).
    keep: str = "last"
    # Maximum number of searches per question. 2 is the paper's CoV-RAG, 1 its CoV-RAG-S; higher
    # values are our extension.
    max_rounds: int = 2
    # For Table 5's format rate, one in this many questions is also verified with free decoding.
    free_every: int = 6


@dataclass(frozen=True)
class Run:
    """Names and folders of a run's files (runs/)."""

    # Name of the run: results go to <figures>/<name>. If a run keeps this default, they go to
    # runs/embedded if all other parameters have their defaults too, and else to <figures>/custom.
    name: str = "embedded"
    # Folder of figures and tables, relative to the clone's root unless absolute.
    figures: str = "figures"
    # Folder of the journals, relative to the clone's root unless absolute.
    runs: str = "runs"
    # The recorded run to show: a folder under results/, "none", or "auto", which takes the recorded
    # run of the same model and data with the most questions, if there is one.
    record: str = "auto"


@dataclass(frozen=True)
class Training:
    """QLoRA fine-tuning on D1 and D2′ (qlora.py)."""

    # Number of times that every sample is seen.
    epochs: int = 3
    # Peak learning rate; the default is QLoRA's for models of up to 13B parameters.
    learning_rate: float = 2e-4
    # Weight of the mean verification loss L_CoV relative to the mean answer loss L_RAG. The paper
    # sums both losses over tokens. Without the fixed parts of its schema, a verdict has about four
    # times as many tokens as an answer.
    verify_weight: float = 4.0
    # Rank of the LoRA matrices, on all linear layers. QLoRA found no benefit from a higher rank.
    lora_rank: int = 16
    # Number of tokens per optimizer update, about 26 samples.
    step_tokens: int = 16384
    # Number of tokens per forward pass. It decides how much memory training needs.
    pack_tokens: int = 4096
    # Activations between the forward and backward pass: "keep" (fastest), "recompute", or "offload"
    # to CPU memory together with the optimizer's weights and moments (least GPU memory).
    activations: str = "recompute"
    # How forward and backward passes run: "eager", "graph" (CUDA graphs), "compiled",
    # "compiled+graph", or "auto", which lets engine/devices.py choose for this machine.
    execution: str = "auto"
    # Folder to which the trained adapters are written.
    adapters_out: str = "runs/adapters"
    # Random seed of the adapter's initial weights and of the order of the samples.
    training_seed: int = 1


@dataclass(frozen=True)
class Synthesis:
    """The training data D1 and D2′ (training/sources.py, synthesis.py)."""

    # Adapters to train: "rag" (WebGLM's recipe), "cov" (CoV-RAG), "cov-direct" (CoV-RAG without the
    # chain of scores), "rewrite" (the rewriter of Start-Revise).
    methods: tuple[str, ...] = ("rag", "cov", "cov-direct", "rewrite")
    # Number of fictional worlds whose training questions make up D: the test world's own, then the
    # worlds of the next seeds.
    n_worlds: int = 1
    # Number of training questions per world or set. 0 means all.
    n_train_questions: int = 8
    # Size of D2′ as a share of the size of D.
    verify_share: float = 1.0
    # What an adapter that verifies learns. "all": all answers and all verdicts. "paper" (Figure 3):
    # as many samples as D has answers, namely one half of D as answers and verdicts on the other
    # half. "paper+answers": the same verdicts and all answers.
    mixture: str = "all"
    # Who writes the verdicts of D2′: "oracle" (rules that use the gold answers), "informed" (the
    # same, but revised questions come from a writer that saw a passage with the answer), or
    # "endpoint:<model>" (a larger model behind a server).
    annotator: str = "oracle"


@dataclass(frozen=True)
class Judging:
    """The judges of Table 3 and the answers that they judge (judging/)."""

    # Folder under results/ with the recorded Table 2 whose answers are judged.
    predictions: str = "table2-smollm2-135m-h200"
    # "rubric" (rules, no model) and "endpoint:<model>" (a model behind a server).
    judges: tuple[str, ...] = ("rubric",)
    # Number of questions per set to judge; the first ones are used. 0 means all.
    n_judged: int = 0


@dataclass(frozen=True)
class Related:
    """CRAG, A²R and FaVe, and the training of their evaluators (plugins/related/)."""

    # Names of the systems to compare, one row each.
    related_systems: tuple[str, ...] = ("RAG trained", "CRAG", "A²R", "FaVe", "CoV-RAG")
    # Number of training questions per world or set for CRAG's evaluator and A²R's entailment model.
    # 0 means all. A fifth of this number of validation questions is used to fit thresholds.
    n_learnt: int = 80


@dataclass(frozen=True)
class Config:
    """All parameters of a run; names are unique, so notebooks use them without their groups."""

    world: World = World()
    data: Data = Data()
    model: Model = Model()
    retrieval: Retrieval = Retrieval()
    chain: Chain = Chain()
    training: Training = Training()
    run: Run = Run()
    synthesis: Synthesis = Synthesis()
    judging: Judging = Judging()
    related: Related = Related()

    def flat(self) -> dict:
        """Return every parameter by its name, without the groups."""
        parameters: dict[str, object] = {}
        for group in asdict(self).values():
            parameters |= group
        return parameters

    def change(self, **changes: object) -> "Config":
        """Return a copy with new values for the named parameters."""
        group_of: dict[str, str] = {}  # the group of each parameter
        for group in fields(self):
            group_of |= {field.name: group.name for field in fields(getattr(self, group.name))}
        changed = self
        for name, value in changes.items():
            group_name = group_of[name]
            new_group = replace(getattr(changed, group_name), **{name: value})
            changed = replace(changed, **{group_name: new_group})
        return changed

    def folder(self) -> Path:
        """Return the folder for figures and tables.

        A run with all defaults writes to runs/embedded, a run with other parameters but no name to
        <figures>/custom. No run writes to figures/embedded, which is part of the repository.
        """
        if self == Config():
            return resolve(self.run.runs) / self.run.name
        name = self.run.name if self.run.name != Run().name else "custom"
        return resolve(self.run.figures) / name

    def journal(self) -> Path:
        """Return the path of the file that stores every text that a model wrote in this run.

        Runs without a name share one journal; a text is found by its prompt, weights and settings.
        """
        return resolve(self.run.runs) / self.run.name / "journal.jsonl"

    def __str__(self) -> str:
        defaults = Config().flat()
        lines = []
        for name, value in self.flat().items():
            if value != defaults[name]:
                lines.append(f"{name} = {value!r}   (default {defaults[name]!r})\n")
        n_unchanged = len(defaults) - len(lines)
        rest = f"{n_unchanged} parameters keep their defaults (covrag_lite/config.py)"
        return f"{''.join(lines)}{rest}; the manifest lists all values"


def from_notebook(names: Mapping[str, Any]) -> Config:
    """Read the configuration from a notebook's globals; every plain value must be a parameter."""
    return Config().change(**read_parameters(names, Config().flat()))


def from_manifest(parameters: Mapping[str, Any]) -> Config:
    """Read the configuration of a recorded run; parameters that no longer exist are ignored."""
    defaults = Config().flat()
    return from_notebook({name: parameters[name] for name in parameters if name in defaults})


def resolve(path: str) -> Path:
    """Return a user's path as an absolute path; a relative one starts at the clone's root."""
    return ROOT / expand_home(path)


def expand_home(path: str) -> Path:
    """Return a path with "~" replaced by the home folder; "~<unknown user>" stays as it is."""
    return Path(os.path.expanduser(path))  # Path.expanduser raises a RuntimeError instead
