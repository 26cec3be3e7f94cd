"""The command `python -m covrag_lite.replication`: a whole replication that can be stopped.

    python -m covrag_lite.replication meta-llama/Llama-2-7b-hf --dry-run
    python -m covrag_lite.replication qwen2.5-coder-1.5b -p data <folder, or hub>

All output goes to runs/<backbone>/. Finished stages are not repeated. Other parameters than at the
start are refused. The settings are in replication.toml; those in its [plan] can be set too, as in
`-p table2 "RAG trained,CoV-RAG"`. The backbone `smollm2-135m-world` uses the fictional world and
needs no data.
"""

import argparse
import sys
from collections.abc import Sequence

from covrag_lite.engine import load_engine
from covrag_lite.files import describe_error
from covrag_lite.parameters import typed
from covrag_lite.replication import forecast, stages
from covrag_lite.replication.plan import Plan, load_plans
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED
from covrag_lite.tables.comparisons.pairs import COMPARISONS

PROG = "python -m covrag_lite.replication"
SUMMARY = "Replicate the paper on one backbone with one command that can be stopped and run again."

# Errors whose message is enough, next to this package's own ones.
EXPECTED = (ValueError, OSError, MemoryError, ModuleNotFoundError, FloatingPointError)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    prog = PROG if sys.argv[0].endswith("__main__.py") else None  # argparse would say __main__.py
    parser = argparse.ArgumentParser(prog, description=SUMMARY)
    about_backbone = "a name in replication.toml, a hub id, a local folder or a .gguf file"
    parser.add_argument("backbone", help=about_backbone)
    parser.add_argument(
        "-p",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="set a parameter of config.py or of [plan] in replication.toml",
    )
    about_stages = "the stages to run, separated by commas: %(default)s"
    parser.add_argument("--stages", default=",".join(stages.STAGES), help=about_stages)
    parser.add_argument("--seeds", help="the training seeds, separated by commas, as in 1,2,3")
    about_dry_run = "only print the forecast of hours, memory and downloads"
    parser.add_argument("--dry-run", action="store_true", help=about_dry_run)
    about_gpu_gb = "assume a card with this many GB instead of the card of this machine"
    parser.add_argument("--gpu-gb", type=float, default=0, help=about_gpu_gb)
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Print the forecast, then run the stages; an error ends the command with one sentence."""
    parser = build_parser()
    options = parser.parse_args(words)
    wanted = options.stages.split(",")
    unknown = set(wanted) - set(stages.STAGES)
    if unknown:
        names = ", ".join(sorted(unknown))
        parser.error(f"stages {names} are not known; use some of {', '.join(stages.STAGES)}")
    try:
        run(options, wanted)
    except KeyboardInterrupt:
        sys.exit(f"{parser.prog}: interrupted; the same command continues")
    except Exception as error:
        if not (isinstance(error, EXPECTED) or type(error).__module__.startswith("covrag_lite.")):
            raise
        sys.exit(f"{parser.prog}: {describe_error(error)}")


def run(options: argparse.Namespace, wanted: Sequence[str]) -> None:
    """Run the wanted stages, unless this is a dry run or something does not fit."""
    seeds = typed("seeds", options.seeds, (1,)) if options.seeds else ()
    plans = load_plans(options.backbone, dict(options.p), seeds)
    if "claim" in wanted:
        check_claim(plans[0])
    plans[0].choose("train")  # missing data fails before anything is written
    print(plans[0].config)
    expected = forecast.foresee(plans[0], list_states(plans, wanted), options.gpu_gb)
    print(expected, flush=True)
    if expected.refusals:
        raise MemoryError(f"does not fit: {'; '.join(expected.refusals)}")
    if options.dry_run:
        return
    # A gated model or a lost network fails now, not after hours of building data.
    load_engine(plans[0].config.model)
    print(stages.replicate(plans, wanted).to_string(index=False))


def check_claim(plan: Plan) -> None:
    """Raise an error if no two systems of the claim can be compared."""
    systems = set(plan.settings["claim"])
    if not any(systems.issuperset(pair) for pair in COMPARISONS):
        cure = f"name at least {RAG_TRAINED} and {COV_RAG}"
        raise ValueError(f"-p claim has no two systems that can be compared; {cure}")


def list_states(plans: Sequence[Plan], wanted: Sequence[str]) -> list[forecast.State]:
    """List the state of each stage; one that all seeds share, as the data, is listed once."""
    states = {}
    for step in stages.list_steps(plans, wanted):
        state = forecast.State(step.plan.seed, step.stage, step.done)
        states.setdefault(step.result, state)
    return list(states.values())


if __name__ == "__main__":
    main()
