"""From questions to trained adapters: training questions, seed models, D2′ and validation."""
