"""Citation recall and precision as in ALCE."""

import pytest

from covrag_lite.related.citing import assess, read_statements


def quality(passages, answer, entailed):
    """The quality of one answer, where each set of passages in `entailed` entails everything."""

    def entail(x, k, y):
        return [float({p.id for p in own} in entailed) for own in k]

    (made,) = assess(["who?"], [passages[:3]], [answer], entail)
    return made


def test_statements_are_sentences_with_what_they_cite(passages):
    said = read_statements("Edith[1][2]. She was born in 1861 [2]. ", passages)
    assert [text for text, _ in said] == ["Edith.", "She was born in 1861 ."]
    assert [[p.id for p in cited] for _, cited in said] == [["p0", "p1"], ["p1"]]
    assert read_statements("Edith[9]", passages) == [("Edith", ())]  # a mark that points nowhere cites nothing
    assert read_statements("[1]", passages) == []


def test_recall_needs_the_cited_passages_to_entail_the_statement(passages):
    everything = {"p0", "p1", "p2"}
    assert quality(passages, "Edith[1]", [{"p0"}, everything]).recall == 1
    assert quality(passages, "Edith[2]", [{"p0"}, everything]).recall == 0
    uncited = quality(passages, "Edith", [{"p0"}, everything])
    assert (uncited.recall, uncited.precision, uncited.support, uncited.citations) == (0, None, 1, 0)
    assert uncited.scores()["citation precision"] == 0


@pytest.mark.parametrize(
    "entailed, precision",
    [
        ([{"p0", "p1"}, {"p0"}, {"p1"}], 1),  # each entails it alone
        ([{"p0", "p1"}], 1),  # both are needed
        ([{"p0", "p1"}, {"p0"}], 0.5),  # the second neither entails it nor is needed
        ([{"p0"}], 0),  # together they do not entail it: recall is 0, so no citation counts
    ],
)
def test_a_citation_counts_if_it_entails_alone_or_is_needed(passages, entailed, precision):
    assert quality(passages, "Edith[1][2]", entailed).precision == precision


def test_an_empty_answer_has_no_quality(passages):
    made = quality(passages, "", [{"p0"}])
    assert (made.support, made.recall, made.precision) == (0, 0, None)
