"""The files of a run: predictions, outcomes and manifests; save them, find them and load them."""
