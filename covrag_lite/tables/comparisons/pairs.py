"""Which systems are compared in the table "claim", and the names of the baselines computed for it.

Recorded files contain these names. `tables/labels.py` has the names that people read.
"""

from itertools import chain, pairwise

from covrag_lite.systems import names

METRIC = "whole"  # the accuracy that is compared: a gold answer occurs as whole words
BASELINE = names.RAG_TRAINED
POOLED = "pooled"  # in place of a seed: all seeds that ran a comparison
ALL_SETS = "all"  # in place of a question set: all questions

# Query expansion on some questions only: those that the verifier flags, or as many of those with
# the lowest likelihood.
EXPANSION_IF_FLAGGED = "queries expanded where the verifier doubts"
EXPANSION_IF_UNLIKELY = "queries expanded where answers are unlikely"
# Two readers without a verifier: of two seeds' answers, the one with the higher likelihood.
TWO_EXPANDED_READERS = "two readers, every query expanded"
TWO_PLAIN_READERS = "two plain readers, one search"
# The same readers of expanded queries with a verifier: of two seeds' answers, the one with the
# higher combined score. Planned for seeds 8 and 9, and for 10 and 11.
TWO_EXPANDED_READERS_COMBINED = "two readers, every query expanded, weighed answer"
# The answer with the highest likelihood of all seeds that answered every question.
ALL_EXPANDED_READERS = "all readers, every query expanded"
# Several readers of expanded queries: both seeds of a pair have the same outcomes.
SHARED_BY_PAIR = (TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED, ALL_EXPANDED_READERS)
# Systems that were thought of after the results of the others were known. Two readers of expanded
# queries are one of them for seeds 6 and 7; for seeds 8 to 11 they were planned.
POST_HOC = (TWO_EXPANDED_READERS, TWO_PLAIN_READERS, ALL_EXPANDED_READERS)
# Two readers with a verifier: a system's answer or CoV-RAG's first one, whichever has the higher
# combined score.
TWO_READERS_ONE_SEARCH = "two readers, one search"
TWO_READERS_NEXT = "two readers, the next passages"
TWO_READERS_TWO_SEARCHES = "two readers, two searches"

# Our best form, two adapters with the score-combined answer, was chosen on validation questions.
OURS = names.TWO_ADAPTERS_COMBINED
OURS_NO_CHAIN = names.TWO_ADAPTERS_NO_CHAIN_COMBINED

CHAINS = (  # each system is compared with the next, the one expected to be worse first
    (BASELINE, OURS),
    # Controls: our form without its own second search.
    (BASELINE, names.TWO_ADAPTERS_SHUFFLED, OURS),
    (BASELINE, names.TWO_ADAPTERS_NEXT, OURS),
    (BASELINE, TWO_READERS_ONE_SEARCH, OURS),
    (BASELINE, TWO_READERS_NEXT, OURS),
    (BASELINE, TWO_READERS_TWO_SEARCHES),
    (TWO_READERS_NEXT, TWO_READERS_TWO_SEARCHES),
    # The paper's form, and other rules that keep an answer.
    (BASELINE, names.TWO_ADAPTERS_LIKELIER),
    (BASELINE, names.TWO_ADAPTERS),
    (BASELINE, names.COV_RAG),
    (BASELINE, names.COV_RAG_S, names.COV_RAG, OURS),
    (names.COV_RAG_S, names.COV_RAG_LIKELIER),
    # Verdicts without scores.
    (BASELINE, OURS_NO_CHAIN),
    (OURS, OURS_NO_CHAIN),
    (BASELINE, names.TWO_ADAPTERS_NO_CHAIN_NEXT, names.TWO_ADAPTERS_NO_CHAIN_LIKELIER),
    (BASELINE, names.TWO_ADAPTERS_NO_CHAIN_LIKELIER),
    # Query expansion, with and without a verifier.
    (BASELINE, names.EXPANSION, names.TWO_ADAPTERS_NO_CHAIN_LIKELIER),
    (names.EXPANSION, OURS_NO_CHAIN, names.EXPANSION_COMBINED),
    (names.EXPANSION, OURS),
    (BASELINE, names.EXPANSION_COMBINED),
    (names.EXPANSION, names.EXPANSION_COMBINED),
    # Two readers without a verifier, and readers of expanded queries with one.
    (BASELINE, TWO_EXPANDED_READERS),
    (names.EXPANSION, TWO_EXPANDED_READERS, names.EXPANSION_COMBINED),
    (BASELINE, TWO_EXPANDED_READERS_COMBINED),
    (TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED),
    (names.EXPANSION_COMBINED, TWO_EXPANDED_READERS_COMBINED),
    (TWO_EXPANDED_READERS, ALL_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED),
    (BASELINE, TWO_PLAIN_READERS, OURS),
    (TWO_PLAIN_READERS, OURS_NO_CHAIN),
    # Query expansion on some questions only, and by the system's own answer.
    (BASELINE, EXPANSION_IF_FLAGGED, OURS_NO_CHAIN),
    (BASELINE, EXPANSION_IF_UNLIKELY, EXPANSION_IF_FLAGGED),
    (BASELINE, names.EXPANSION_BY_ANSWER, OURS_NO_CHAIN),
    # With and without scores.
    (BASELINE, names.TWO_ADAPTERS_NO_CHAIN),
    (names.TWO_ADAPTERS_LIKELIER, names.TWO_ADAPTERS_NO_CHAIN_LIKELIER),
    (names.TWO_ADAPTERS, names.TWO_ADAPTERS_NO_CHAIN),
)
COMPARISONS = list(chain.from_iterable(map(pairwise, CHAINS)))

# A verifier that only chooses among answers, and the seeds whose verifier learnt about 2,600
# verdicts instead of about 8,500. Those seeds are not pooled with others.
CHOSEN_BY_VERIFIER = (names.EXPANSION_COMBINED, TWO_EXPANDED_READERS_COMBINED)
FEW_VERDICTS = ("8", "9")

# What results/real/plan.md calls the results of some comparisons, by seed: "equivalent" within a
# margin, or "helps". Of two readers, the seed is that of the first.
EQUIVALENCE_PLANNED = {
    (TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED): ("8",),
    (TWO_EXPANDED_READERS, names.EXPANSION_COMBINED): ("8", "9"),
}
HELP_PLANNED = {(TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED): ("10",)}
