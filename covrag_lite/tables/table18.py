"""Table 18: revised questions rated by a judge, as for the "revise" column of Table 5.

Judges are named as for Table 3. By the rule, a revised question is good if it was needed and finds
a gold passage; a served judge reads the texts.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT, Config
from covrag_lite.data.missing import DataMissing
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.revisions import (
    judge_revisions_by_endpoint,
    judge_revisions_by_rule,
    load_revised,
    load_revised_without_texts,
)
from covrag_lite.judging.rubric import PROXY
from covrag_lite.runs.recorded import Recorded, check_data, load_or_outcomes, save_run
from covrag_lite.tables import table3
from covrag_lite.tables.agreement import RIGHT_ABOVE, agreement_facts, format_agreement, measure
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share, with_interval
from covrag_lite.tables.labels import label_of_judge, with_labels
from covrag_lite.tables.ranks import score_frame
from covrag_lite.tables.table import Table

COLUMNS = ["judge", "system", "n", "mean score", "good", "low", "high"]
HEADING = (
    "Revised questions by judge: mean score from 0 to 1, and the share scored above 0.5, "
    "in % [95 % interval]"
)
AGREEMENT = (
    "Each served judge's scores compared with the rule: does a score above 0.5 mean that the "
    "revision was needed and found a gold passage? (chance: an AUROC of 0.50)"
)


def load(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged revisions and the recorded verdicts; without the data only outcomes."""
    return load_or_outcomes(run, load_judged, load_judged_outcomes)


def load_judged(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged revisions with their texts, and the recorded verdicts."""
    answers = load_revised(Config(judging=run.config.judging), run.root)
    check_data(run, questions=answers.questions, passages=answers.passages)
    return answers, table3.read_verdicts(run)


def load_judged_outcomes(run: Recorded) -> tuple[Answers, list[dict]]:
    """Load the judged revisions without the data, and the recorded verdicts."""
    return load_revised_without_texts(run.config, run.root), table3.read_verdicts(run)


def judge(
    config: Config, answers: Answers, recorded_verdicts: Sequence[dict] | None = None
) -> list[dict]:
    """Return every configured judge's verdicts about revised questions."""
    ways = (judge_revisions_by_rule, judge_revisions_by_endpoint)
    return table3.judge(config, answers, recorded_verdicts, *ways)


def judge_and_save(config: Config, folder: Path, root: Path = ROOT) -> Table | None:
    """Judge recorded revisions and save the result; None if `predictions` has no Table 5."""
    try:
        answers = load_revised(config, root)
    except DataMissing:
        return None
    start = time.perf_counter()
    verdicts = judge(config, answers)
    seconds = time.perf_counter() - start
    data = {"questions": answers.questions, "passages": answers.passages}
    run = save_run(folder, "table18", {}, config, answers.model, seconds, data)
    table = build((answers, verdicts), run)
    table.save(folder)
    return table


def build(basis: tuple[Answers, list[dict]], run: Recorded) -> Table:
    """Build Table 18 from recorded answers and verdicts; the rule judges again."""
    answers, recorded_verdicts = basis
    verdicts = judge(run.config, answers, recorded_verdicts)
    scores = score_frame(verdicts, answers)
    rows = rate_systems(scores)
    agreement = compare_with_rule(scores, answers)
    parts = {HEADING: format_rates(rows)}
    if len(agreement):
        shown = format_agreement(agreement).rename(columns={"right, %": "good by the rule, %"})
        parts[AGREEMENT] = shown.drop(columns="score")
    files = {"verdicts.jsonl": "".join(f"{json.dumps(verdict)}\n" for verdict in verdicts)}
    forms = {"mean": "{mean score:.2f}", "good": "{good:.1f}", "n": "{n}"}
    forms["good interval"] = "[{low:.1f}, {high:.1f}]"
    facts = facts_of_rows(rows, "{judge} {system}", forms) | agreement_facts(agreement)
    lines = notes(scores)
    return Table("table18", rows, parts, lines, facts, other_files=files, digits=3)


def rate_systems(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per judge and system: its scored revised questions and their scores."""
    rows = []
    for (judge_name, system), part in scores.groupby(["judge", "system"], sort=False):
        scored = part.score.dropna()
        about = (judge_name, system, len(scored), scored.mean())
        rows.append((*about, *share(scored > RIGHT_ABOVE)))
    return pd.DataFrame(rows, columns=COLUMNS)


def compare_with_rule(scores: pd.DataFrame, answers: Answers) -> pd.DataFrame:
    """Compare each served judge's scores with the rule's, on the same revised questions."""
    rule = score_frame(judge_revisions_by_rule(answers), answers)
    rule = rule.assign(right=rule.score)[["id", "system", "right"]]
    served = scores[scores.judge != PROXY].merge(rule, on=["id", "system"])
    return measure(served.dropna(subset=["score", "right"]))


def format_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rates as people read them."""
    cells = [with_interval("{:.1f}", row.good, row.low, row.high) for row in rows.itertuples()]
    means = ["–" if pd.isna(mean) else f"{mean:.2f}" for mean in rows["mean score"]]
    shown = rows[["judge", "system", "n"]].assign(**{"mean score": means, "above 0.5, %": cells})
    return with_labels(shown)


def notes(scores: pd.DataFrame) -> list[str]:
    """Return the notes under the table: what is judged, and how many scores are missing."""
    lines = ["Only revised questions are judged; a revision that was needed and not made is not."]
    for name, rows in scores.groupby("judge", sort=False):
        missing = f"{rows.score.isna().sum()} of {len(rows)} scores are missing"
        lines.append(f"{label_of_judge(name)}: {missing} (an unreadable reply or gold answer).")
    return lines
