"""The names of all systems, as recorded files and parameters contain them.

Do not change a name: recorded runs refer to it. `tables/labels.py` has the names that people read:
"w/o chain" is "no scores" there, and a "weighed answer" is "score-combined".
"""

CLOSED_BOOK = "closed-book"
RAG = "RAG"
RAG_TRAINED = "RAG trained"
START_REVISE = "Start-Revise"
START_REVISE_TRAINED = "Start-Revise trained"
COV_RAG_UNTRAINED = "CoV-RAG untrained"

# One adapter that answers and verifies, as in the paper.
COV_RAG = "CoV-RAG"
COV_RAG_S = "CoV-RAG-S"
COV_RAG_THRESHOLDS = "CoV-RAG thresholds"
COV_RAG_LIKELIER = "CoV-RAG, likelier answer"
COV_RAG_SHUFFLED = "CoV-RAG shuffled"
COV_RAG_FREE = "CoV-RAG free"
NO_CHAIN = "CoV-RAG w/o chain"
NO_CHAIN_FREE = "CoV-RAG w/o chain free"

# Two adapters: one answers, the other verifies.
TWO_ADAPTERS = "CoV-RAG, two adapters"
TWO_ADAPTERS_LIKELIER = "CoV-RAG, two adapters, likelier answer"
TWO_ADAPTERS_COMBINED = "CoV-RAG, two adapters, weighed answer"
TWO_ADAPTERS_SHUFFLED = "CoV-RAG, two adapters, another question's search"
TWO_ADAPTERS_NEXT = "CoV-RAG, two adapters, the next passages"
TWO_ADAPTERS_NO_CHAIN = "CoV-RAG w/o chain, two adapters"
TWO_ADAPTERS_NO_CHAIN_LIKELIER = "CoV-RAG w/o chain, two adapters, likelier answer"
TWO_ADAPTERS_NO_CHAIN_COMBINED = "CoV-RAG w/o chain, two adapters, weighed answer"
TWO_ADAPTERS_NO_CHAIN_NEXT = "CoV-RAG w/o chain, two adapters, the next passages, likelier answer"
TWO_ADAPTERS_NO_CHAIN_BLOCKS = "CoV-RAG w/o chain, two adapters, ten blocks of passages"

# Query expansion: a second search for every question, without a verifier.
EXPANSION = "RAG trained, every query expanded by guesses"
EXPANSION_COMBINED = "RAG trained, every query expanded by guesses, weighed answer"
EXPANSION_BY_ANSWER = "RAG trained, every query expanded by its answer"

# Not a system: the second query is by a model that saw a passage with the answer.
INFORMED_QUERY = "query that knows a passage"
QUESTION_AND_INFORMED_QUERY = "question and query that knows a passage"

# Does the verifier read the references and the answer?
SWAPPED_REFERENCES = "verify, swapped references"
SWAPPED_ANSWERS = "verify, swapped answers"
