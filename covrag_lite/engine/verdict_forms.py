"""The schema of verdicts in the forms that servers understand.

These are a JSON schema and a regular expression. The JSON schema says what a verdict contains. The
expression also says how it is spaced, so a model that was trained on verdicts writes them as it
learnt them.
"""

import json
import re

from covrag_lite.engine.interface import Schema
from covrag_lite.prompts import JUDGMENTS, fill_schema
from covrag_lite.records import SCORES

SCORE_PATTERN = r"(0\.[0-9][0-9]|1\.00)"
LETTERS_PER_TOKEN = 8  # the most of almost all tokens; limits the length of a revised question


def json_schema(schema: Schema) -> dict:
    """Return the JSON schema of a verdict, derived from an example so that they cannot differ."""
    example = fill_schema(schema, [0.5] * len(SCORES), JUDGMENTS[0], "")
    return schema_of(json.loads("".join(example)))


def schema_of(value: dict | float | str) -> dict:
    """Return the JSON schema of a part of a verdict."""
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {key: schema_of(part) for key, part in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    if isinstance(value, float):
        return {"type": "number", "minimum": 0, "maximum": 1}
    if value in JUDGMENTS:
        return {"type": "string", "enum": list(JUDGMENTS)}
    return {"type": "string"}


def regex_of(schema: Schema, max_revised_tokens: int) -> str:
    """Return the schema of verdicts as a regular expression.

    It cannot count the tokens of a revised question, so it counts letters.
    """
    max_letters = LETTERS_PER_TOKEN * max_revised_tokens
    patterns = {
        "score": SCORE_PATTERN,
        "judgment": f"({'|'.join(JUDGMENTS)})",
        "text": rf' "[^"\\\n]{{0,{max_letters}}}"',
    }
    expression = ""
    for part in schema:
        expression += re.escape(part) if isinstance(part, str) else patterns[part[0]]
    return expression.replace("\\ ", " ")  # vLLM's parser does not accept an escaped blank
