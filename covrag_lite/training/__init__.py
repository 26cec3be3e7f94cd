"""How the adapters are made: training data with verdicts, and QLoRA on packed rows of it."""
