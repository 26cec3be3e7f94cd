"""How fast answering is: each function measures one thing against its plain way, in one run, ratios first.

The plain way is transformers' `generate` on the network as transformers, peft and bitsandbytes load it.

    python -m covrag_lite.speed.inference --parts verdicts,batches,rounds,overhead,bm25 --out speed_inference.json
"""

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from covrag_lite import chain, evaluation, prompts
from covrag_lite.config import Config, Run, World
from covrag_lite.data import load_passages, load_questions
from covrag_lite.journal import Journal
from covrag_lite.model import decoding
from covrag_lite.model.local import LanguageModel, load_model
from covrag_lite.records import Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.speed import scaling
from covrag_lite.speed.training import SHAPES, build_network


def random_model(config: Config, shape: str) -> LanguageModel:
    """A model of a larger shape with random weights in 4 bits, which stay packed, behind the embedded model's tokenizer."""
    model = load_model(replace(config.model, adapters="none"))
    named = f"{shape}, vocabulary of {len(model.tokenizer)}"
    hidden, wide, layers, heads, keys, _, tied = SHAPES[shape]
    SHAPES[named] = (hidden, wide, layers, heads, keys, len(model.tokenizer), tied)
    network = build_network(named, model.device).eval()
    network.__dict__["ready"] = {None}
    model.__dict__["_network"] = network
    return model


@contextmanager
def measured(model, network=None):
    """Seconds and forward passes of what is done inside."""
    row = {"seconds": 0.0, "passes": 0}
    hook = (network or model.network).register_forward_pre_hook(lambda *_: row.update(passes=row["passes"] + 1))
    wait = torch.cuda.synchronize if model.device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    yield row
    wait()
    row["seconds"] = time.perf_counter() - start
    hook.remove()


def compare(rows: dict[str, dict], plain: str, better: dict[str, str]) -> pd.DataFrame:
    """One row a way, its ratios to the plain way first; `better` names what is divided: ratio -> column."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    for name, column in reversed(better.items()):
        frame.insert(0, name, frame.loc[plain, column] / frame[column])
    return frame


def generate(model, network, texts: Sequence[str], limit: int, allowed: Callable | None = None) -> list[str]:
    """What transformers' own loop makes of one batch."""
    tokenizer, ids = model.tokenizer, model.encode(texts, limit)
    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
    with torch.inference_mode():
        out = network.generate(
            **batch,
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=model.end_id,
            pad_token_id=tokenizer.pad_token_id,
            prefix_allowed_tokens_fn=allowed,
        )
    return [
        text.strip() for text in tokenizer.batch_decode(out[:, batch.input_ids.shape[1] :], skip_special_tokens=True)
    ]


def walk(model, writer) -> Generator[Sequence[int], int, None]:
    """The schema as a grammar: yields which tokens may come next and is sent the one that came."""
    digits = [writer.ids(str(digit))[0] for digit in range(10)]
    for part in model.schema:
        match part:
            case str():
                for token in writer.ids(part):
                    yield [token]
            case "score", _:
                rest = digits if (yield digits[:2]) == digits[0] else digits[:1]
                yield writer.ids(".")
                yield rest
                yield rest
            case "judgment", _:
                words = {ids[0]: ids for ids in map(writer.ids, prompts.JUDGMENTS)}
                for token in words[(yield list(words))][1:]:
                    yield [token]
            case "text", _:
                opening, empty, end = writer.ids(' "')[0], writer.ids(' ""')[0], writer.ids('"')[0]
                free = (~writer.forbidden(end)).nonzero().flatten()
                if (yield [opening, empty]) == opening or opening == empty:
                    for _ in range(model.config.max_revised_tokens):
                        if (yield free) == end:
                            break
                    else:
                        yield [end]
    while True:
        yield [model.end_id]


def verdicts(model, texts: Sequence[str]) -> pd.DataFrame:
    """One batch of verdicts forced into the schema, against transformers' `generate` with the schema as a mask on the same network."""
    network, room = model.quick_network, prompts.VERDICT_ROOM + model.config.max_revised_tokens
    texts = model.batches(texts, room)[0]
    model.verify(texts[:1])
    with measured(model) as forced:
        written = model.verify(texts)
    writer = decoding.Writer(model, texts[:1], 0)  # for its tokenising alone
    walks = [walk(model, writer) for _ in texts]
    first = [next(one) for one in walks]
    width = max(map(len, model.encode(texts, 0)))
    with measured(model) as masked:
        allowed = lambda row, ids: first[row] if len(ids) == width else walks[row].send(ids[-1].item())
        again = generate(model, network, texts, room, allowed)
    rows = {"masked generate": masked, "forced": forced}
    same = sum(one == other for one, other in zip(written, again))
    return compare(rows, "masked generate", {"fewer_passes": "passes", "faster": "seconds"}).assign(
        same=same, n=len(texts)
    )


def batches(model, texts: Sequence[str], limit: int, plain_network=None) -> pd.DataFrame:
    """Answers a second in our batches, against one question at a time through `generate`, plain and on the quick network."""
    rows, made = {}, {}

    def take(name: str, write: Callable[[], list[str]], network=None) -> None:
        with measured(model, network) as rows[name]:
            made[name] = write()

    alone = lambda network: lambda: [generate(model, network, [text], limit)[0] for text in texts]
    if plain_network is not None:
        take("one at a time, as loaded", alone(plain_network), plain_network)
    model.generate(texts[:1], limit)
    take("one at a time", alone(model.quick_network))
    planned = model.batches(texts, limit)
    take("batches", lambda: [text for batch in planned for text in model.generate(batch, limit)])
    made["batches"] = list(map(dict(zip((text for batch in planned for text in batch), made["batches"])).get, texts))
    plain = next(iter(rows))
    for name, row in rows.items():
        row |= {
            "per_second": len(texts) / row["seconds"],
            "same": sum(one == other for one, other in zip(made[plain], made[name])),
            "n": len(texts),
        }
    return compare(rows, plain, {"faster": "seconds"})


def rounds(config: Config, model, search: Callable, questions: Sequence[Question]) -> pd.DataFrame:
    """What CoV-RAG costs over plain RAG with the same model, stage by stage, in both layouts of the prompts."""
    taken = {}
    model.with_adapter("cov").generate(["?"], 1)
    for layout in prompts.LAYOUTS:
        own, view = replace(config, model=replace(config.model, layout=layout)), copy.copy(model)
        view.config = own.model
        view = (view if view.with_adapter("cov").adapter else model).with_adapter(
            "cov"
        )  # one trained in the other layout costs the same
        stages: dict[str, dict] = {}

        def timed(name: str, work: Callable) -> Callable:
            def run(*given):
                with measured(view) as row:
                    made = work(*given)
                stages[f"{name}{' again' if name in stages else ''}"] = row | {"n": len(given[-1])}
                return made

            return run

        with tempfile.TemporaryDirectory() as folder:
            tools = evaluation.bind(own, search, view, Journal(Path(folder) / "journal.jsonl"))
            if layout == "shared":
                timed("answer and verify", lambda questions: evaluation.foresee(own, tools, "cov", questions))(
                    questions
                )
            chain.cov_rag(
                questions, timed("search", search), timed("answer", tools.answer), timed("verify", tools.verify)
            )
        taken |= {f"{name}, {layout} layout": row for name, row in stages.items()}
        taken[f"CoV-RAG, {layout} layout"] = pd.DataFrame(stages.values())[["seconds", "passes"]].sum().to_dict() | {
            "n": len(questions)
        }
    frame = pd.DataFrame.from_dict(taken, orient="index")
    frame.insert(0, "times_rag", frame.seconds / frame.seconds[["search, paper layout", "answer, paper layout"]].sum())
    return frame


def benchmark(
    parts: Sequence[str], config: Config, n: int, shape: str = "", sizes: Sequence[int] = (10_000, 100_000)
) -> dict[str, pd.DataFrame]:
    """The named parts over the first questions of the world; a shape measures verdicts and batches with random weights."""
    questions, passages = load_questions(config)[:n], load_passages(config)
    search = load_retriever(config.retrieval, passages)
    x = [question.question for question in questions]
    k, limit = search(x), config.model.max_answer_tokens
    answers, judged = (
        list(map(prompts.build_answer, x, k)),
        [prompts.build_verify(*one, "It is so.[1]") for one in zip(x, k)],
    )
    model = (
        (random_model(config, shape) if shape else load_model(config.model))
        if {"verdicts", "batches", "rounds"} & set(parts)
        else None
    )
    plain = lambda: model.network if shape else load_model(config.model).with_adapter("rag").network
    work = {
        "verdicts": lambda: verdicts(model.with_adapter("cov"), judged),
        "batches": lambda: batches(model.with_adapter("rag"), answers, limit, None if shape else plain()),
        "rounds": lambda: rounds(config, model, search, questions),
        "overhead": lambda: scaling.overhead(config),
        "bm25": lambda: scaling.bm25(config, sizes),
    }
    return {part: work[part]() for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="verdicts,batches,rounds,overhead,bm25")
    parser.add_argument("--questions", type=int, default=256 if torch.cuda.is_available() else 6)
    parser.add_argument(
        "--shape",
        default="",
        help="a shape of covrag_lite.speed, such as 7b, with random weights in 4 bits; else the embedded model",
    )
    parser.add_argument("--passages", default="10000,100000", help="sizes of the worlds that are searched")
    parser.add_argument("--out", type=Path, help="a JSON file for the frames")
    given = parser.parse_args()
    config = Config(world=World(n_test=max(150, given.questions // 4 + 1)), run=Run(name="speed"))
    config = replace(config, data=replace(config.data, n_questions=-(-given.questions // 4)))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    content = {"device": device, "torch": torch.__version__, "shape": given.shape or config.model.model}
    for part in given.parts.split(","):
        frame = benchmark([part], config, given.questions, given.shape, tuple(map(int, given.passages.split(","))))[
            part
        ]
        print(part, frame.round(3).to_string(), sep="\n", flush=True)
        content[part] = json.loads(frame.to_json(orient="index"))
        if given.out:
            given.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
