"""The names of the related systems and of their heads, as recorded files contain them.

Do not change a name: recorded runs refer to it.
"""

RRR = "RRR"
CRAG = "CRAG"
A2R = "A²R"
COQ = "CoQ"
UOQ = "UoQ"
FAVE = "FaVe"

# The heads: two small classifiers, see `heads`.
EVALUATOR = "evaluator"  # CRAG's retrieval evaluator, also used by FaVe, UoQ and CoQ
ENTAILMENT = "entailment"  # the entailment proxy of A²R and of all citation scores
HEADS = (EVALUATOR, ENTAILMENT)
