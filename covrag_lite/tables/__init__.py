"""What came out, beside the paper's numbers and beside recorded runs: tables, notes and pictures."""
