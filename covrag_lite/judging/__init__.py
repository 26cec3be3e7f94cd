"""Table 3: answers judged by more than accuracy, by rules or by a served model, and ranked."""
