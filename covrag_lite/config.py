"""Every parameter of a run: one frozen dataclass a concern, and the only place where defaults stand.

A notebook's parameters cell holds the same flat names (a test compares them); `from_notebook(globals())` reads them
back and stops at a name or a type it does not know, because papermill itself only warns.
"""

import difflib
import re
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

# Relative paths start here: papermill and JupyterLab work in different folders.
ROOT = Path(__file__).resolve().parent.parent
ALL = ("all",)  # every set that the data has
ASSIGNED = re.compile(r"^(\w[\w, ]*?)(?::[^=\n]*)?=(?!=)", re.MULTILINE)  # the names that a line of a cell assigns to


class ParameterError(ValueError):
    """A parameter that cannot be; in a notebook the sentence is shown without the way that led to it."""

    def _render_traceback_(self) -> list[str]:  # IPython's
        return [f"ParameterError: {self}"]


@dataclass(frozen=True)
class World:
    """The embedded fictional world (data/world/)."""

    seed: int = 1  # same seed, same bytes
    n_passages: int = 2400  # size of the corpus, from a thousand to a million
    # Test questions in each of the four sets; then training and validation questions, all sets together.
    n_world: tuple[int, ...] = (150, 1200, 200)
    # Shares of the questions with something in the way of their answer; one that is not named keeps its default.
    traps: tuple[str, ...] = (
        "misspelt 0.12",  # words are misspelt
        "cut_off 0.07",  # the question is cut off before its end
        "vague 0.07",  # it names its subject only vaguely
        "namesakes 0.12",  # it is about one of several of the same name
        "synonyms 0.12",  # it has other words than its passage
        "stale 0.1",  # older passages seem to answer it
        "contradicting 0.1",  # passages answer it which contradict a better one
    )

    def __post_init__(self) -> None:
        """Write out all shares, so that equal worlds compare equal and a manifest names every share."""
        made = {name: float(share) for name, share in map(str.split, World.traps)}
        for one in self.traps:
            name, _, share = one.partition(" ")
            if name not in made or not re.fullmatch(r"-?\d*\.?\d+", share):
                known = ", ".join(made)
                raise ParameterError(f"{one!r} of 'traps' must be one of {known}, and its share, as in 'vague 0.07'")
            made[name] = float(share)
        object.__setattr__(self, "traps", tuple(f"{name} {share}" for name, share in made.items()))

    @cached_property
    def shares(self) -> dict[str, float]:
        """The shares of `traps` by name."""
        return {name: float(share) for name, share in map(str.split, self.traps)}


@dataclass(frozen=True)
class Data:
    """Which questions, over which passages (data/)."""

    data: str = "world"  # "world", "hub" (public sets by name), or a folder with <set>.jsonl, train_<set>.jsonl, corpus
    datasets: tuple[str, ...] = ALL  # "all", or some sets by name; the world's are search, entity, complex and quiz
    split: str = "test"  # "test", "validation" or "train"
    n_questions: int = 2  # of each set, the first ones; 0 means all
    # Passages for "hub", or in place of a folder's corpus: a name of data/corpora.toml, or a JSONL file.
    corpus: str = ""
    sample: int = 400  # test questions that are drawn from each set of "hub", as many as the paper's; 0 means all
    question: str = "complex 1"  # of notebooks/explore.ipynb: a set and a number, counted from 0; or your own question


@dataclass(frozen=True)
class Model:
    """The language model (engine/)."""

    # That alias, a hub id (with @<revision>), a local folder, a .gguf file, or "endpoint:<name>" of a server.
    model: str = "smollm2-135m"
    # A folder with trained adapters; "auto": results/adapters/<model>, if there; "none"; "served" behind an endpoint.
    adapters: str = "auto"
    quantize: str = "nf4"  # "nf4" (4 bits, double quantisation), "int8" or "none"
    device: str = "auto"  # "auto" takes CUDA where there is one; "cpu" or "cuda"
    max_answer_tokens: int = 40  # the gold answers are a few words; a sentence with citations fits
    max_revised_tokens: int = 32  # the longest revised question
    layout: str = "shared"  # of adapters' prompts: criteria first, the answer last; "paper" is the paper's order
    verdicts: str = "forced"  # "forced" into their schema, so that every one parses; "free": as the model writes them

    @property
    def short(self) -> str:
        """The model's name without the place it comes from, and without its revision."""
        return Path(self.model.partition("@")[0]).name.removesuffix(".gguf")


@dataclass(frozen=True)
class Retrieval:
    """The retriever (retrieval/)."""

    # "bm25" (words), "dense" (embeddings) or "fused" (both); "engine" (LanceDB, cached) or engine:<folder>; "web" or
    # web-<provider>: ddgs, serper or searxng.
    retriever: str = "bm25"
    encoder: str = "minilm"  # of "dense", "fused" and "web": that alias (all-MiniLM-L6-v2), a hub id, or a local folder
    k: int = 5  # the paper's five references
    snapshot: str = "runs/web"  # the folder of the web's frozen results, which are read wherever there are some
    live: str = "no"  # "yes" searches the web for what is not frozen yet, and freezes it
    retrievers: tuple[str, ...] = ("bm25", "dense", "fused")  # those that notebooks/table6.ipynb compares

    @property
    def kind(self) -> str:
        """The retriever's name without the provider or the address behind it."""
        return self.retriever.partition(":")[0].partition("-")[0]

    @property
    def has_corpus(self) -> bool:
        """Does it search the data's passages, rather than the web?"""
        return self.kind != "web"


@dataclass(frozen=True)
class Chain:
    """The systems (systems.py)."""

    systems: tuple[str, ...] = ("closed-book", "RAG", "Start-Revise", "RAG trained", "CoV-RAG-S", "CoV-RAG")
    sigma: str = "revision"  # re-retrieve when there is a revised question; or "thresholds", the paper's footnote 1
    keep: str = "last"  # whose answer counts: the last one's, as in the paper; "likelier" and "weighed" are ours
    max_rounds: int = 2  # the paper: one re-retrieval; 1 is CoV-RAG-S, more is our extension
    free_every: int = 6  # every sixth question's verdicts are also written freely, for Table 5's format rate


@dataclass(frozen=True)
class Run:
    """Where a run keeps its work (runs/)."""

    name: str = "embedded"  # results go to <figures>/<name>; "embedded" is kept for the default parameters
    figures: str = "figures"  # pictures and tables, under the project's root unless absolute
    runs: str = "runs"  # journals, likewise
    # The recorded run that is shown: a folder of results/; "auto": of this very model and data the one with the most
    # questions, if there is one; "none".
    record: str = "auto"


@dataclass(frozen=True)
class Training:
    """QLoRA on D1 and D2' (qlora.py)."""

    epochs: int = 3  # times every sample is seen
    learning_rate: float = 2e-4  # QLoRA's, for models up to 13B
    # Of L_CoV's mean beside L_RAG's: a verdict has about four times the free tokens of an answer, and the paper sums.
    verify_weight: float = 4.0
    lora_rank: int = 16  # on all linear layers; QLoRA found that a higher one buys nothing there
    step_tokens: int = 16384  # tokens between two updates, about 26 samples
    pack_tokens: int = 4096  # tokens that go through the model together; the setting that decides the memory
    # What layers hold between forward and backward pass: "keep" all of it (fastest), "recompute" most of it, or
    # "offload" it to the CPU's memory, with the optimizer's weights and moments (least of the GPU's memory).
    activations: str = "recompute"
    # How passes run, of training and of answering: "eager", "graph", "compiled" or "compiled+graph"; "auto" takes what
    # engine/devices.py says.
    execution: str = "auto"
    adapters_out: str = "runs/adapters"  # the folder that the adapters are written to
    training_seed: int = 1  # of the adapter's first weights and of the order of the samples


@dataclass(frozen=True)
class Synthesis:
    """The training data (synthesis.py)."""

    # Adapters to train: WebGLM's recipe, CoV-RAG, CoV-RAG without its chain, Start-Revise's rewriter.
    methods: tuple[str, ...] = ("rag", "cov", "cov-direct", "rewrite")
    n_worlds: int = 1  # worlds whose training splits make up D: the test world's own, then those of the next seeds
    n_train_questions: int = 8  # questions of D taken from each world or set; 0 means all
    verify_share: float = 1.0  # size of D2' as a share of D
    # What an adapter that verifies learns: "all" answers and verdicts; "paper" (Figure 3): as many samples as D has
    # answers, one half of D as answers and verdicts on the other; "paper+answers": those verdicts and all answers.
    mixture: str = "all"
    annotator: str = "oracle"  # "oracle", which knows the gold answers, or "endpoint:<model>", a teacher


@dataclass(frozen=True)
class Judging:
    """Who judges whose answers (judging.py)."""

    predictions: str = "table2-smollm2-135m-h200"  # a folder of results/ whose Table 2 is judged
    judges: tuple[str, ...] = ("rubric",)  # "rubric", rules in place of a judge, and "endpoint:<model>", a served model
    n_judged: int = 0  # questions of each set that are judged, the first ones; 0 means all


@dataclass(frozen=True)
class Related:
    """CRAG, A²R and FaVe beside CoV-RAG, and what they need trained (related/)."""

    related_systems: tuple[str, ...] = ("RAG trained", "CRAG", "A²R", "FaVe", "CoV-RAG")  # the rows
    # Training questions of each world or set that heads learn from; 0 means all. A fifth as many validation questions
    # fit thresholds.
    n_learnt: int = 80


@dataclass(frozen=True)
class Config:
    """All parameters of a run. Field names are unique across the concerns, so that a notebook can write them flat."""

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
        """Every parameter by its flat name."""
        return {name: value for concern in asdict(self).values() for name, value in concern.items()}

    def change(self, **changes: object) -> "Config":
        """The same run with other values of some parameters, given by their flat names."""
        home = {f.name: concern.name for concern in fields(self) for f in fields(concern.type)}
        made = self
        for name, value in changes.items():
            concern = replace(getattr(made, home[name]), **{name: value})
            made = replace(made, **{home[name]: concern})
        return made

    def folder(self) -> Path:
        """Where pictures and their numbers go; only the default parameters ever write to figures/embedded."""
        own = self.run.name != Run().name or self == Config()
        return resolve(self.run.figures) / (self.run.name if own else "custom")

    def journal(self) -> Path:
        """The file that holds every text a model wrote in this run."""
        return resolve(self.run.runs) / self.run.name / "journal.jsonl"

    def __str__(self) -> str:
        default = Config().flat()
        changed = {name: value for name, value in self.flat().items() if value != default[name]}
        lines = [f"{name} = {value!r}   (default {default[name]!r})\n" for name, value in changed.items()]
        rest = f"{len(default) - len(changed)} parameters have the defaults of covrag_lite/config.py"
        return f"{''.join(lines)}{rest}; the manifest lists all"


def from_notebook(names: Mapping[str, object]) -> Config:
    """The configuration a notebook's globals ask for; every plain value among them must be a parameter."""
    return Config().change(**read_parameters(names, Config().flat()))


def read_parameters(names: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    """The plain values among a notebook's globals, each in its parameter's type; any other name is refused."""
    given, own = {}, own_variables(names.get("In", ()), known)
    for name, value in names.items():
        plain = isinstance(value, (bool, int, float, str, list, tuple, types.NoneType))
        if name.startswith("_") or name in ("In", "Out") or name in own or not plain:
            continue
        if name not in known:
            near = [repr(one) for one in difflib.get_close_matches(name, known, n=3, cutoff=0)]
            raise ParameterError(
                f"{name!r} is not a parameter; did you mean {', '.join(near[:-1])} or {near[-1]}? All are told in "
                "covrag_lite/config.py. (A variable of your own: start its name with an underscore.)"
            )
        given[name] = typed(name, value, known[name])
    return given


def own_variables(cells: Sequence[str], known: Collection[str]) -> set[str]:
    """What a notebook computed before its cells were run again; these plain values are no parameters.

    A cell that sets a parameter, or calls nothing, holds parameters, and what is misspelt there is still refused.
    """
    computed, given = set(), set()
    if sum("from_notebook(" in cell for cell in cells) < 2:
        return computed
    for cell in cells:
        targets = ASSIGNED.findall(cell)
        names = {name.strip() for target in targets for name in target.split(",")}
        parameters = "(" not in cell or names & set(known) and "from_notebook(" not in cell
        (given if parameters else computed).update(names)
    return computed - given


def from_manifest(parameters: Mapping[str, object]) -> Config:
    """The configuration of a recorded run; a parameter that has gone since is passed over."""
    given = {name: value for name, value in parameters.items() if name in Config().flat()}
    known = [one for one in given.get("traps", World.traps) if one != "unanswerable 0.0"]  # gone, and no run has set it
    return from_notebook(given | {"traps": known})


def resolve(path: str) -> Path:
    """A path a user gave, from the project's root unless it is absolute or starts with "~"."""
    return ROOT / Path(path).expanduser()


def need(module: str) -> types.ModuleType:
    """A module that only some runs need; where a package is missing, the command that brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; `make setup-all` brings it, or pip install -r env/requirements-all.txt",
            name=error.name,
        ) from None


def typed(name: str, value: object, default: object) -> object:
    """The value in its default's type: text is read as that, and a list, or "a,b", stands for a tuple."""
    is_tuple = isinstance(default, tuple)
    kind = type(default[0] if is_tuple else default)
    given = value if is_tuple else [value]
    if is_tuple and isinstance(value, str):  # parted by semicolons where a name holds a comma
        given = [part.strip() for part in value.split(";" if ";" in value else ",") if part.strip()]
    kinds = {kind, str, int} if kind is float else {kind, str}  # True is no number
    try:
        if given and {type(one) for one in given} <= kinds:
            made = tuple(map(kind, given))
            return made if is_tuple else made[0]
    except (TypeError, ValueError):
        pass
    one, many = {str: ("text", "names"), int: ("a whole number", "whole numbers"), float: ("a number", "numbers")}[kind]
    wanted = f"a list of {many}, or {many} separated by commas" if is_tuple else one
    raise ParameterError(f"parameter {name!r} is {value!r}, but must be {wanted}, such as {default!r}")
