"""The fast engine: the texts and losses of the plain one, in less time. Nobody has to read it.

- `local`, `network`: the engine, and a network prepared for answering
- `unpacking`, `light_adapters`, `batch_plan`: less work per token, and full batches
- `prefill`, `varlen_prefill`, `varlen_attention`: reading prompts with and without padding
- `decoding`, `forced`: writing answers, and verdicts that are forced into their schema
- `decode_session`, `cuda_graphs`: decoding steps that are recorded once and replayed
- `training`, `layers`, `loss`, `offload`: training with a backward pass written by hand
- `elementwise`: what a layer computes between its matrix products
- `memory`: estimates of what fits
"""
