"""Judges of answers (Section 4.2 of the paper): a rubric of plain rules, or a served model."""
