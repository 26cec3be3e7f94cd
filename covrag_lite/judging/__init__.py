"""Judges of answers (Section 4.2 and Table 3 of the paper) and of revised questions (Table 18).

answers    the answers of a recorded run that are judged
criteria   what answers are scored by, and the verdicts that are recorded
rubric     rules in place of a judge, so that Table 3 needs no model
served     a model behind an endpoint
revisions  the judge of revised questions: a rule, or a model behind an endpoint
"""
