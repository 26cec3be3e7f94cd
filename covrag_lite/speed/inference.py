"""How fast answering is: each function measures one thing against its plain way, in one run, ratios first.

The plain way is transformers' `generate` on the network as transformers, peft and bitsandbytes load it.

    python -m covrag_lite.speed.inference --parts verdicts,batches,rounds,overhead,bm25 --out speed_inference.json
"""

import argparse
import json
import os.path
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from covrag_lite import chain, prompts
from covrag_lite.config import Config, Run, World
from covrag_lite.data import load_passages, load_questions
from covrag_lite.model import decoding
from covrag_lite.model.local import LanguageModel, load_model
from covrag_lite.records import Passage, Question
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
        out = network.generate(**batch, max_new_tokens=limit, do_sample=False, eos_token_id=model.end_id, pad_token_id=tokenizer.pad_token_id,
                               prefix_allowed_tokens_fn=allowed)
    return [text.strip() for text in tokenizer.batch_decode(out[:, batch.input_ids.shape[1]:], skip_special_tokens=True)]


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
    return compare(rows, "masked generate", {"fewer_passes": "passes", "faster": "seconds"}).assign(same=same, n=len(texts))


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
        row |= {"per_second": len(texts) / row["seconds"], "same": sum(one == other for one, other in zip(made[plain], made[name])), "n": len(texts)}
    return compare(rows, plain, {"faster": "seconds"})


def shared_prompts(question: str, passages: Sequence[Passage], answer: str) -> tuple[str, str]:
    """Both tasks' prompts in a layout that begins with the same text: references and question, the task after them."""
    begin = f"{prompts.build_references(passages)}{prompts.SEPARATOR}Question: {question}{prompts.SEPARATOR}"
    example = prompts.render_verdict((0.9, 1.0, 0.8, 0.7, 0.8, 0.9), "true", "")
    return (f"{begin}{prompts.ANSWER_MARKER}Answer:",
            f"{begin}{prompts.VERIFY_MARKER}Answer: {answer}\n{prompts.CRITERIA}\n{prompts.STEPS}\nOutput format example:\n{example}")


def answer_and_verify(model, x: Sequence[str], k: Sequence, limit: int) -> tuple[list[str], list[str]]:
    """One batch in the shared layout: references and question are read once, for the answer and for the verdict."""
    asked = [shared_prompts(*one, "") for one in zip(x, k)]
    answers, verdicts = (model.encode([pair[i] for pair in asked], 0) for i in range(2))
    begin = [len(os.path.commonprefix(pair)) for pair in zip(answers, verdicts)]
    writer = decoding.Writer(model, [pair[0] for pair in asked], limit)
    offset = len(answers[0]) - len(writer.pending[0])  # read already, as all prompts begin with it
    writer.pending = [ids[offset:n] for ids, n in zip(answers, begin)]
    writer.logits()
    rows, mask, kept = writer.rows, writer.mask, [(layer.keys, layer.values) for layer in writer.cache.layers]
    writer.pending = [ids[n:] for ids, n in zip(answers, begin)]
    written = writer.write_free(rows, model.end_id, limit)
    y = [model.tokenizer.decode(written[row], skip_special_tokens=True).strip() for row in rows]
    writer.rows, writer.mask = rows, mask
    for layer, (keys, values) in zip(writer.cache.layers, kept):
        layer.keys, layer.values = keys, values  # as they were before the answers: a cache only ever grows by new tensors
    whole = model.encode([shared_prompts(*one)[1] for one in zip(x, k, y)], 0)
    writer.pending = [ids[n:] for ids, n in zip(whole, begin)]
    return y, [text for text, _ in decoding.write_schema(writer)]


def rounds(config: Config, model, search: Callable, questions: Sequence[Question]) -> pd.DataFrame:
    """What CoV-RAG costs over plain RAG with the same model, by stage, and its first round in a layout that reads references once."""
    limit, x, taken = config.model.max_answer_tokens, [question.question for question in questions], {}

    def timed(stage: str, work: Callable) -> Callable:
        def run(*given):
            with measured(model) as row:
                made = work(*given)
            name = stage if stage not in taken else f"{stage} again"
            taken[name] = {"seconds": row["seconds"], "passes": row["passes"], "n": len(given[0])}
            return made
        return run

    in_batches = lambda write, texts, room: dict(pair for batch in model.batches(list(dict.fromkeys(texts)), room) for pair in zip(batch, write(batch)))

    def answer(x, k):
        asked = list(map(prompts.build_answer, x, k))
        return list(map(in_batches(lambda batch: model.generate(batch, limit), asked, limit).get, asked))

    def verify(x, k, y):
        asked, room = list(map(prompts.build_verify, x, k, y)), prompts.VERDICT_ROOM + config.model.max_revised_tokens
        return [prompts.parse_verdict(text, model.schema) for text in map(in_batches(model.verify, asked, room).get, asked)]

    model.generate(x[:1], 1)
    chain.cov_rag(questions, timed("search", search), timed("answer", answer), timed("verify", verify))
    k, room = search(x), prompts.VERDICT_ROOM + config.model.max_revised_tokens
    size = len(model.batches([prompts.build_verify(*one, "") for one in zip(x, k)], room)[0])  # a second cache is in the half that is left free
    with measured(model) as joint:
        for i in range(0, len(x), size):
            answer_and_verify(model, x[i:i + size], k[i:i + size], limit)
    total = lambda *stages: pd.DataFrame([taken[stage] for stage in stages])[["seconds", "passes"]].sum().to_dict() | {"n": len(x)}
    rag, stages = total("search", "answer"), list(taken)
    taken["CoV-RAG"] = total(*stages)
    taken["answer and verify, shared layout"] = {**joint, "n": len(x)}
    taken["CoV-RAG, shared layout"] = total("answer and verify, shared layout", *(stage for stage in stages if stage not in ("answer", "verify")))
    frame = pd.DataFrame.from_dict(taken, orient="index")
    frame.insert(0, "times_rag", frame.seconds / rag["seconds"])
    return frame


def benchmark(parts: Sequence[str], config: Config, n: int, shape: str = "") -> dict[str, pd.DataFrame]:
    """The named parts over the first questions of the world; a shape measures verdicts and batches with random weights."""
    questions, passages = load_questions(config)[:n], load_passages(config)
    search = load_retriever(config.retrieval, passages)
    x = [question.question for question in questions]
    k, limit = search(x), config.model.max_answer_tokens
    answers, judged = list(map(prompts.build_answer, x, k)), [prompts.build_verify(*one, "It is so.[1]") for one in zip(x, k)]
    model = (random_model(config, shape) if shape else load_model(config.model)) if {"verdicts", "batches", "rounds"} & set(parts) else None
    plain = lambda: model.network if shape else load_model(config.model).with_adapter("rag").network
    work = {
        "verdicts": lambda: verdicts(model.with_adapter("cov"), judged),
        "batches": lambda: batches(model.with_adapter("rag"), answers, limit, None if shape else plain()),
        "rounds": lambda: rounds(config, model.with_adapter("cov"), search, questions),
        "overhead": lambda: scaling.overhead(config), "bm25": lambda: scaling.bm25(config),
    }
    return {part: work[part]() for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="verdicts,batches,rounds,overhead,bm25")
    parser.add_argument("--questions", type=int, default=256 if torch.cuda.is_available() else 6)
    parser.add_argument("--shape", default="", help="a shape of covrag_lite.speed, such as 7b, with random weights in 4 bits; else the embedded model")
    parser.add_argument("--out", type=Path, help="a JSON file for the frames")
    given = parser.parse_args()
    config = Config(world=World(n_test=max(150, given.questions // 4 + 1)), run=Run(name="speed"))
    config = replace(config, data=replace(config.data, n_questions=-(-given.questions // 4)))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    content = {"device": device, "torch": torch.__version__, "shape": given.shape or config.model.model}
    for part in given.parts.split(","):
        frame = benchmark([part], config, given.questions, given.shape)[part]
        print(part, frame.round(3).to_string(), sep="\n", flush=True)
        content[part] = json.loads(frame.to_json(orient="index"))
        if given.out:
            given.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
