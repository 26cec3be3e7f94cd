.PHONY: help setup setup-all table2 test lint check lab faults notebooks
.DEFAULT_GOAL := help
# Compiled modules are kept, whatever the shell says: every process would compile torch and the like anew.
export PYTHONDONTWRITEBYTECODE =

help:  ## what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup:  ## what tables and notebooks need, in .venv, from the pins in env/
	@bash env/setup.sh

setup-all:  ## also other retrievers, public sets, served models, JupyterLab and the tests
	@bash env/setup.sh all

table2: setup  ## Table 2: the recorded run over all questions, and a sample of them answered here, live
	.venv/bin/papermill notebooks/table2.ipynb
	@cat runs/embedded/table2.live.md
	@echo 'Picture: figures/embedded/table2.png. Next: notebooks/explore.ipynb follows one question (make lab), results/README.md has real ones.'

test: setup-all  ## all tests, offline, on a CPU
	.venv/bin/python -m pytest

lint: setup-all  ## formatting and style, without changing anything
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .

faults: setup-all  ## put each fault of tests/faults into a copy and print those that no test notices; SAMPLE=10 takes ten
	.venv/bin/python tests/faults/run.py $(if $(SAMPLE),--sample $(SAMPLE))

check: setup-all  ## make every recorded table anew, without a model, and compare every recorded number
	.venv/bin/python -m covrag_lite.check

notebooks: setup-all  ## execute the notebooks in place, with default parameters, and store their outputs (15 minutes)
	.venv/bin/python notebooks/execute.py $(ONLY)

lab: setup-all  ## JupyterLab on the notebooks
	.venv/bin/jupyter lab notebooks
