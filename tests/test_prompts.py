import pytest

from covrag_lite import prompts
from covrag_lite.records import SCORES

GOOD = prompts.render_verdict([0.5] * 6, "true", "")


RUBBISH = ["", "no json", "{", GOOD[:-5], "[1, 2]", '{"1": 3}']
WRONG = {"0.50": ("1.70", '"high"', "true"), "true": ("maybe",), '"4"': ('"5"',), '"bias"': ('"byas"',)}


@pytest.mark.parametrize("text", RUBBISH + [GOOD.replace(right, wrong, 1) for right in WRONG for wrong in WRONG[right]])
def test_rubbish_is_counted_as_unparsed_and_never_scored(text):
    verdict = prompts.parse_verdict(text)
    assert not verdict.parsed
    assert (verdict.text, verdict.revised_question) == (text, "")
    assert all(getattr(verdict, name) is None for name in SCORES)
