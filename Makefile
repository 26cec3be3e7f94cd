.PHONY: help setup setup-all table2 test lint check html lab mutants notebooks
.DEFAULT_GOAL := help
# Keep compiled modules, whatever the shell's setting: otherwise every process compiles torch again.
export PYTHONDONTWRITEBYTECODE =

help:  ## list these targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup:  ## install what the tables and notebooks need into .venv, with the versions in env/
	@bash env/setup.sh

setup-all:  ## also install other retrievers, public sets, served models, JupyterLab and test tools
	@bash env/setup.sh all

table2: setup  ## show Table 2: the recorded run on all questions, and a sample answered live here
	.venv/bin/papermill notebooks/table2.ipynb
	@cat runs/embedded/table2.live.md
	@echo 'Figure: runs/embedded/table2.png'
	@echo 'Next: make lab, then notebooks/explore.ipynb follows one question.'
	@echo 'Results on real questions: results/README.md'

test: setup-all  ## run all tests, offline, on a CPU
	.venv/bin/python -m pytest

lint: setup-all  ## check formatting, style and types; change nothing
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

mutants: setup-all  ## change the code at random and list changes that no test notices (SAMPLE=100 SEED=date ONLY=core, rest or cuda)
	.venv/bin/python tests/mutants/run.py $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(SUITE),--suite) $(if $(CHECKED),--checked)

check: setup-all  ## compute every recorded table again, without a model, and compare all numbers
	.venv/bin/python -m covrag_lite.check

notebooks: setup-all  ## execute the notebooks in place, with default parameters, and store their outputs (15 minutes)
	.venv/bin/python notebooks/execute.py $(ONLY)

html: setup-all  ## write the notebooks as pages that need no Jupyter and no network, into html/
	.venv/bin/covrag html

lab: setup-all  ## open the notebooks in JupyterLab
	.venv/bin/jupyter lab notebooks
