PYTHON ?= python3
VENV := .venv
REFERENCE := .venv-reference
INFINITY := .venv-infinity
REVISION ?= main
CLIENTS := services frameworks generated
# A comma within an argument of a call.
, := ,
BASE := $(VENV)/.base
DEV := $(VENV)/.dev

# A download may arrive damaged, which older pips neither mend nor try again: once more, past pip's own cache.
define pip-install
$(1)/bin/pip install --quiet --disable-pip-version-check $(2) || \
$(1)/bin/pip install --quiet --disable-pip-version-check --no-cache-dir $(2)
endef

.DEFAULT_GOAL := help
.PHONY: help install serve test test-reference test-real test-clients check format proto golden bench bench-engine bench-scheduler bench-scaling bench-soak bench-rivals bench-turns clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(BASE) ## Make .venv with vecmill in it, ready to serve

serve: $(BASE) ## Serve the demo model on http://127.0.0.1:8080 (ARGS="MODEL --port N" for more)
	$(VENV)/bin/vecmill serve $(ARGS)

test: $(DEV) ## Run the tests (no torch; the demo model comes from the package index)
	$(VENV)/bin/pytest -m "not reference and not real and not clients" $(ARGS)

test-reference: $(REFERENCE)/.installed ## Compare with sentence-transformers on torch
	$(REFERENCE)/bin/pytest -m reference $(ARGS)

test-real: $(REFERENCE)/.installed ## Compare on trained weights from the package index (1 GB; ARGS='-m "real and not large"': 120 MB)
	$(REFERENCE)/bin/pytest -m real $(ARGS)

# Compiled modules are kept, whatever the environment says: importing the frameworks takes half a minute without.
test-clients: $(DEV) ## Ask a served process with the libraries that people use (900 MB)
	@$(MAKE) --silent -j4 $(CLIENTS:%=.venv-clients-%/.installed) .venv-clients-node/.installed
	@for group in $(CLIENTS); do \
		echo "$$group"; \
		PYTHONDONTWRITEBYTECODE= CLIENTS=$$group .venv-clients-$$group/bin/pytest --noconftest -W ignore -m clients $(ARGS) tests/clients || exit 1; \
	done

check: $(DEV) ## Format, lint and types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(DEV) ## Rewrite the files as the formatter wants them
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

proto: $(DEV) ## Compile the messages of the gRPC service anew from tei.proto
	$(VENV)/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/vecmill/api/grpc/tei.proto

golden: $(REFERENCE)/.installed ## Record the golden vectors anew from sentence-transformers
	$(REFERENCE)/bin/python scripts/make_golden.py

bench: $(DEV) ## Measure start, memory, installed size and latency; writes bench/results
	$(VENV)/bin/python bench/run.py $(ARGS)

bench-engine: $(REFERENCE)/.installed ## Measure the graph against ONNX Runtime's fused BERT and sentence-transformers
	$(REFERENCE)/bin/python bench/engine.py

bench-scheduler: $(DEV) ## Measure what the queue itself costs
	$(VENV)/bin/python bench/scheduler.py

bench-scaling: $(DEV) ## Study fleets of replicas on paper; writes docs/scaling (ARGS="STUDY ..." for some)
	$(VENV)/bin/python bench/scaling.py $(ARGS)

bench-soak: $(DEV) ## Measure whether an hour of mixed load leaves a mark (ARGS=seconds)
	$(VENV)/bin/python bench/soak.py $(ARGS)

bench-rivals: $(DEV) $(INFINITY)/.installed ## Measure queries and bulk work against Infinity and the bare engine (ARGS=seconds a workload)
	$(VENV)/bin/python bench/rivals.py $(INFINITY)/bin/python $(ARGS)

bench-turns: $(DEV) ## Measure this checkout against another revision, in turns (REVISION=main ARGS="mixed float32 6 5")
	$(VENV)/bin/python bench/turns.py $(REVISION) $(ARGS)

clean: ## Remove the virtual environments
	rm -rf $(VENV) $(REFERENCE) $(INFINITY) .venv-clients-*

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml | $(VENV)/bin/python
	$(call pip-install,$(VENV),-e .)
	touch $@

$(DEV): pyproject.toml | $(BASE)
	$(call pip-install,$(VENV),-e '.[dev]')
	touch $@

$(REFERENCE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(REFERENCE)
	$(call pip-install,$(REFERENCE),-e '.[dev$(,)reference]')
	touch $@

$(INFINITY)/.installed:
	$(PYTHON) -m venv $(INFINITY)
	$(call pip-install,$(INFINITY),'infinity-emb[server$(,)optimum]==0.0.78')
	touch $@

# The files name every package that is installed: to resolve so many takes pip many minutes. Older pips read the index's
# pages slowly, and most modules are never imported, so never need compiling.
.venv-clients-%/.installed: tests/clients/requirements-%.txt
	$(PYTHON) -m venv .venv-clients-$*
	$(call pip-install,.venv-clients-$*,--upgrade pip)
	$(call pip-install,.venv-clients-$*,--no-deps --no-compile -r $<)
	touch $@

.venv-clients-node/.installed: tests/clients/requirements-node.txt
	mkdir -p $(@D)
	if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $(@D) $$(cat $<); fi
	touch $@
