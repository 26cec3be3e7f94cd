"""How fast answering is: each function measures one thing against its plain way, in one run, ratios first.

The plain way is transformers' `generate` on the network as transformers, peft and bitsandbytes load it. The part
"continuous" measures against its continuous batching, "vllm" against vLLM, "graphs" our own steps by CUDA graphs
against those without, and "reading" our own ways of reading prompts against each other.
notebooks/speed.ipynb calls `benchmark`.

    python -m benchmarks.inference --parts verdicts,batches,rounds,overhead,bm25 --out speed_inference.json
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from benchmarks import scaling
from benchmarks.grammar import walk
from benchmarks.options import numbers, some_of
from benchmarks.rows import write_json
from benchmarks.shapes import SHAPES, build_network
from benchmarks.stages import measured, rounds
from covrag_lite import prompts
from covrag_lite.config import Config, Run, World
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import decoding
from covrag_lite.engine.local import LanguageModel, load_model
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit

PARTS = ("verdicts", "batches", "rounds", "overhead", "bm25", "continuous", "vllm", "graphs", "reading")


def random_model(config: Config, shape: str) -> LanguageModel:
    """A model of a larger shape with random weights that stay in 4 bits, behind the embedded model's tokenizer."""
    model = load_model(replace(config.model, adapters="none"))
    vocabulary = len(model.tokenizer)
    name = f"{shape}, vocabulary of {vocabulary}"
    SHAPES[name] = SHAPES[shape]._replace(vocabulary=vocabulary)
    network = build_network(name, model.device).eval()
    network.__dict__["ready"] = {None}  # nothing is left for `quick_network` to unpack
    model.__dict__["_network"] = network
    return model


def compare(rows: dict[str, dict], plain: str, better: dict[str, str]) -> pd.DataFrame:
    """One row a way, its ratios to the plain way first; `better` names what is divided: ratio -> column."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    for name, column in reversed(better.items()):
        frame.insert(0, name, frame.loc[plain, column] / frame[column])
    return frame


def count_equal(texts: Sequence[str], others: Sequence[str]) -> int:
    """In how many places two lists hold the same text."""
    return sum(one == other for one, other in zip(texts, others))


def generate(
    model: LanguageModel, network: torch.nn.Module, texts: Sequence[str], limit: int, allowed: Callable | None = None
) -> list[str]:
    """What transformers' own loop makes of one batch."""
    tokenizer = model.tokenizer
    batch = tokenizer.pad({"input_ids": model.encode(texts, limit)}, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        out = network.generate(
            **batch,
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=model.end_id,
            pad_token_id=tokenizer.pad_token_id,
            prefix_allowed_tokens_fn=allowed,
        )
    prompt_length = batch.input_ids.shape[1]
    written = tokenizer.batch_decode(out[:, prompt_length:], skip_special_tokens=True)
    return [text.strip() for text in written]


def verdicts(model: LanguageModel, texts: Sequence[str]) -> pd.DataFrame:
    """A batch of verdicts forced into the schema, against `generate` with the schema as a mask on the same network."""
    network = model.quick_network
    room = prompts.VERDICT_ROOM + model.config.max_revised_tokens
    texts = model.batches(texts, room)[0]
    model.verify(texts[:1])
    with measured(model) as forced:
        written = model.verify(texts)
    writer = decoding.Writer(model, texts[:1], 0)  # for its tokenising alone
    walks = [walk(model, writer) for _ in texts]
    first = [next(one) for one in walks]
    width = max(len(ids) for ids in model.encode(texts, 0))

    def allowed(row: int, ids: torch.Tensor) -> Sequence[int]:
        return first[row] if len(ids) == width else walks[row].send(ids[-1].item())

    with measured(model) as masked:
        again = generate(model, network, texts, room, allowed)
    rows = {"masked generate": masked, "forced": forced}
    frame = compare(rows, "masked generate", {"fewer_passes": "passes", "faster": "seconds"})
    return frame.assign(same=count_equal(written, again), n=len(texts))


def batches(
    model: LanguageModel, texts: Sequence[str], limit: int, plain_network: torch.nn.Module | None = None
) -> pd.DataFrame:
    """Answers a second in our batches, against `generate` one question at a time, plain and on the quick network."""
    rows, made = {}, {}

    def take_one_at_a_time(name: str, network: torch.nn.Module, counted: torch.nn.Module | None) -> None:
        with measured(model, counted) as rows[name]:
            made[name] = [generate(model, network, [text], limit)[0] for text in texts]

    if plain_network is not None:
        take_one_at_a_time("one at a time, as loaded", plain_network, plain_network)
    model.generate(texts[:1], limit)
    take_one_at_a_time("one at a time", model.quick_network, None)
    planned = model.batches(texts, limit)
    answers = {}
    with measured(model) as rows["batches"]:
        for batch in planned:
            answers.update(zip(batch, model.generate(batch, limit)))
    made["batches"] = [answers[text] for text in texts]
    plain = next(iter(rows))
    for name, row in rows.items():
        row["per_second"] = len(texts) / row["seconds"]
        row["same"] = count_equal(made[plain], made[name])
        row["n"] = len(texts)
    return compare(rows, plain, {"faster": "seconds"})


def benchmark(
    parts: Sequence[str],
    config: Config,
    n: int,
    shape: str = "",
    sizes: Sequence[int] = (10_000, 100_000),
    note: Callable[[str, pd.DataFrame], None] | None = None,
    seconds: float | None = None,
) -> dict[str, pd.DataFrame]:
    """The named parts over the world's first questions; with a shape, verdicts and batches are of random weights.

    `note` is called with a part's name and its rows so far whenever a long part has a new one; such a part begins no
    row after so many `seconds`.
    """
    questions = load_questions(config)[:n]
    passages = load_passages(config)
    search = load_retriever(config.retrieval, passages)
    asked = [question.question for question in questions]
    found = search(asked)
    needs_model = not set(parts) <= {"overhead", "bm25"}
    if needs_model:
        model = random_model(config, shape) if shape else load_model(config.model)

    def measure(part: str) -> pd.DataFrame:
        given = {"note": partial(note, part)} if note else {}
        if seconds is not None:
            given["seconds"] = seconds
        match part:
            case "verdicts":
                texts = [prompts.build_verify(x, k, "It is so.[1]") for x, k in zip(asked, found)]
                return verdicts(model.with_adapter("cov"), texts)
            case "batches":
                texts = [prompts.build_answer(x, k) for x, k in zip(asked, found)]
                plain = None if shape else load_model(config.model).with_adapter("rag").network
                return batches(model.with_adapter("rag"), texts, config.model.max_answer_tokens, plain)
            case "rounds":
                return rounds(config, model, search, questions)
            case "continuous":
                from benchmarks import continuous

                plain = None if shape else load_model(config.model).with_adapter("cov").network
                return continuous.against(config, model, search, questions, plain, **given)
            case "vllm":
                from benchmarks import vllm_peer

                return vllm_peer.against(config, model, search, questions, **given)
            case "graphs":
                from benchmarks import replaying

                return replaying.against(config, model, search, questions, **given)
            case "reading":
                from benchmarks import reading

                return reading.against(config, model, search, questions, **given)
            case "overhead":
                return scaling.overhead(config)
            case "bm25":
                return scaling.bm25(config, sizes)
        raise KeyError(part)

    return {part: measure(part) for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=some_of(PARTS), default=list(PARTS[:5]))
    parser.add_argument("--questions", type=int, default=256 if torch.cuda.is_available() else 6)
    shape_help = "a shape of covrag_lite.speed, such as 7b, with random weights in 4 bits; else the embedded model"
    parser.add_argument("--shape", default="", help=shape_help)
    parser.add_argument("--model", default=Config().model.model, help="of covrag_lite.config, as are the next two")
    parser.add_argument("--adapters", default=Config().model.adapters)
    parser.add_argument("--data", default=Config().data.data)
    sizes_help = "sizes of the worlds that are searched"
    parser.add_argument("--passages", type=numbers(int), default=[10_000, 100_000], help=sizes_help)
    parser.add_argument("--out", type=Path, help="a JSON file for the frames")
    parser.add_argument(
        "--seconds", type=float, help="after which continuous, vllm, graphs and reading begin no further row"
    )
    given = parser.parse_args()
    of_each_set = math.ceil(given.questions / 4)
    config = Config(world=World(n_world=(max(150, given.questions // 4 + 1), 1200, 200)), run=Run(name="speed"))
    config = config.change(n_questions=of_each_set, model=given.model, adapters=given.adapters, data=given.data)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    content = {**find_commit(), "device": device, "torch": torch.__version__}
    content["shape"] = given.shape or config.model.model

    def keep(part: str, frame: pd.DataFrame) -> None:
        content[part] = json.loads(frame.to_json(orient="index"))
        if given.out:
            write_json(given.out, content)

    for part in given.parts:
        made = benchmark([part], config, given.questions, given.shape, given.passages, keep, given.seconds)
        print(part, made[part].round(3).to_string(max_colwidth=80, na_rep=""), sep="\n", flush=True)
        keep(part, made[part])


if __name__ == "__main__":
    main()
