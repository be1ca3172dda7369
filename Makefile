# `make demo` and `make test` do all the set-up on a fresh machine: the demo what a user installs,
# without PyTorch, in .venv-core, the others everything, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CORE := .venv-core
BUILD := .venv-build
CLEAN := .venv-dist
DOCS := .venv-docs
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11) and "GryphOne needs Python 3.11 or newer")

.PHONY: demo test test-ray lint style bench bench-gpu bench-train gpu-check load scale setup browser dist docs fonts tables

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

$(CORE)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install -q -c constraints.txt -e .
	touch $@

demo: $(CORE)/.ready
	@$(CORE)/bin/python -c 'import importlib.util as u, sys; \
	  sys.exit(u.find_spec("torch") and "$(CORE) holds PyTorch: the core must do without it")'
	$(CORE)/bin/gryphone demo examples

test: $(READY)
	$(BIN)/pytest

# Bulk recognition on a cluster of two machines made of processes: Ray is large, and slow to start.
test-ray: $(READY)
	$(BIN)/pip install -q -c constraints.txt -e '.[ray]'
	$(BIN)/pytest tests/ray

$(BUILD)/.ready: constraints.txt
	$(PYTHON) -m venv $(BUILD)
	$(BUILD)/bin/pip install -q -c constraints.txt build
	touch $@

# The source archive, the wheel that it builds, and what a user has who installs that and no more.
dist: $(BUILD)/.ready
	rm -rf dist $(CLEAN)
	$(BUILD)/bin/python -m build --outdir dist .
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/pip install -q -c constraints.txt dist/*.whl
	cd dist && ../$(CLEAN)/bin/python -I ../tests/installed.py
	cd dist && ../$(CLEAN)/bin/gryphone demo --out ../$(CLEAN)/refinement.png

$(DOCS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c '$(NEW_ENOUGH)'
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install -q -c constraints.txt -e '.[docs]'
	touch $@

# The documentation site, in site/; a dead link is an error. The page in it needs npm's registry, and
# without that the site says so.
docs: $(DOCS)/.ready
	rm -rf build/page
	-$(DOCS)/bin/gryphone page build/page
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

# Debian's Chromium for the end-to-end tests of the page; nothing happens where it is there.
browser:
	@command -v chromium >/dev/null || \
	  { sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$sudo apt-get update -q && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium; }

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Packing, loading and drawing rates on the CPU, and the time of one answer.
bench: $(READY)
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/bench_recognize.py
	$(BIN)/python benchmarks/bench_speed.py
	$(BIN)/python benchmarks/parts.py

# The same on a GPU, with the processes that it takes to keep one busy; then every command once.
bench-gpu: $(READY)
	$(BIN)/python benchmarks/bench_speed.py --device cuda --workers 12

gpu-check: $(READY)
	$(BIN)/python benchmarks/on_gpu.py

# Training speed of `paper` and `ink` on the GPU; needs packed/train.parquet (see docs/training.md).
bench-train: $(READY)
	$(BIN)/python benchmarks/bench_train.py

# Load test of the server on the loopback interface, and attacks on it: some ten minutes.
load: $(READY)
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/attacks.py

# What docs/scale.md tells of: workers and replicas (needs nginx), two nodes, a store that is streamed
# (2 GB of disk, 17 GB of memory for the path that holds it all).
scale: $(READY)
	$(BIN)/python benchmarks/replicas.py
	$(BIN)/python benchmarks/nodes.py
	$(BIN)/python benchmarks/stream.py /tmp/gryphone-stream

# Handwriting fonts under open licences (Google Fonts, by npm): further hands for the synthesiser,
# and some to validate with.
fetch = mkdir -p $(1) && cd $(1) && for name in $$(cat $(CURDIR)/configs/$(2)); do \
	  npm pack --silent @fontsource/$$name > .packed && \
	  tar xzf $$(cat .packed) -O package/files/$$name-latin-400-normal.woff > $$name.woff || exit 1; \
	done && rm -f .packed *.tgz

fonts:
	$(call fetch,fonts,fonts.txt)
	$(call fetch,fonts/held-out,fonts-held-out.txt)

# Every table and figure of docs/reproduction.md, from stored predictions and the data's truths.
DATA ?= ../shared/data/crohme
tables: $(READY)
	$(BIN)/gryphone study all --predictions docs/results/22-sat-rmml --data $(DATA) --out docs/results/tables
	$(BIN)/gryphone study recovery --predictions docs/results/release --data $(DATA) --out docs/results/tables
	$(BIN)/gryphone study recovery --predictions docs/results/30-rivals --data $(DATA) --out docs/results/tables/decoders
	$(BIN)/gryphone study remasking --predictions docs/results/30-remasking --data $(DATA) --out docs/results/tables/decoders
	$(BIN)/gryphone study rivals --predictions docs/results/30-rivals --data $(DATA) --out docs/results/tables
	$(BIN)/gryphone study remasking --predictions docs/results/release --data $(DATA) --out docs/results/tables/release
