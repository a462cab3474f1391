# TokenPeak: thin targets over the `tokenpeak` command line. `make` alone prints help.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

INVENTORY ?= sim
ARCHIVE ?= results
FAULT_NODES ?= 3
NODES ?= 1 12 50 200
SEED ?= 1
RUNS ?= 5
TARGET ?= dir

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := .tokenpeak/locked-uv/bin/uv
TOKENPEAK := $(BIN)/tokenpeak
# A sweep starts Python some hundred times: each start would compile everything anew where the caller's environment, a
# container's say, forbids to keep what was compiled.
export PYTHONDONTWRITEBYTECODE :=

# What may be given: VALUES are one word each, LISTS words. ACTS let a target do more: they count from the command line
# alone, so that nothing exported answers for whoever types.
VALUES := INVENTORY SWEEP RESUME ARCHIVE INSTALL_USER SERIAL SWEEP_ID CONFIG TARGET DEST YES ACCEPT RELEASE ROTATE \
  ORDER FAULTS FAULT_NODES SEED RUNS NODES
LISTS := NODE ONLY E2E
ACTS := YES ACCEPT RELEASE ROTATE DEST CONFIG
typed = $(filter command,$(origin $(1)))
inventory_typed := $(call typed,INVENTORY)
$(foreach name,$(ACTS),$(if $(call typed,$(name)),,$(eval override $(name) :=)))

# They are text: each word is quoted for the shell here, once, and no $ of it is ever expanded.
define line_end


endef
quoted = '$(subst ','\'',$(patsubst ~/%,$(value HOME)/%,$(subst $(line_end), ,$(1))))'
quoted_words = $(foreach word,$(1),$(foreach each,$(or $(wildcard $(word)),$(word)),$(call quoted,$(each))))
$(foreach name,$(VALUES),$(if $(value $(name)),$(eval override $(name) := $$(call quoted,$$(value $(name))))))
$(foreach name,$(LISTS),$(if $(value $(name)),$(eval override $(name) := $$(call quoted_words,$$(value $(name))))))
unexport $(VALUES) $(LISTS)

apply_options = $(addprefix --node=,$(NODE)) $(if $(YES),--yes) $(if $(SERIAL),--serial=$(SERIAL)) $(if $(INSTALL_USER),--user=$(INSTALL_USER))
sweep_option := $(if $(SWEEP),--sweep $(SWEEP))

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: INVENTORY=%s  SWEEP=(the inventory'"'"'s default)  RESUME=SWEEP_ID  ARCHIVE=%s\n' $(INVENTORY) $(ARCHIVE)

##@ Tune
.PHONY: sweep
sweep: $(READY) ## Find the best settings: probe, plan, trials, database, site (RESUME= goes on)
	@$(TOKENPEAK) sweep $(if $(RESUME),--resume $(RESUME),--inventory $(INVENTORY) $(sweep_option))

.PHONY: plan
plan: $(READY) ## Print the matrix, what is dropped and why, and how long it will take
	@$(TOKENPEAK) plan --inventory $(INVENTORY) $(sweep_option)

.PHONY: probe
probe: $(READY) ## Put the node script on the nodes of INVENTORY and look at them; stops nothing
	@$(TOKENPEAK) probe --inventory $(INVENTORY)

.PHONY: status
status: $(READY) ## Show what each node serves now and whether a guard is armed
	@$(TOKENPEAK) status --inventory $(INVENTORY)

.PHONY: install
install: $(READY) ## Put the node script and its guard on the nodes, once, as root (INSTALL_USER=root, ROTATE=1)
	@$(TOKENPEAK) install --inventory $(INVENTORY) $(if $(INSTALL_USER),--user $(INSTALL_USER)) $(if $(ROTATE),--rotate)

.PHONY: uninstall
uninstall: $(READY) ## Take everything of TokenPeak's off the nodes of INVENTORY (INSTALL_USER=root)
	@$(if $(inventory_typed),,$(error Say from where: make uninstall INVENTORY=x))$(TOKENPEAK) uninstall --inventory $(INVENTORY) $(if $(INSTALL_USER),--user $(INSTALL_USER))

.PHONY: restore
restore: $(READY) ## Bring production back on every node; always safe (ACCEPT=1: as it serves now; RELEASE=1: for sweeps again)
	@$(TOKENPEAK) restore --inventory $(INVENTORY) $(if $(ACCEPT),--accept) $(if $(RELEASE),--release)

##@ Apply
.PHONY: apply
apply: $(READY) ## Carry what SWEEP_ID says to run into production, one node first; shows the change, YES=1 does it (NODE=, SERIAL=, CONFIG=)
	@$(if $(SWEEP_ID),,$(error Say which: make apply SWEEP_ID=20261121-010000-quick-sim-4f2a9c))$(TOKENPEAK) apply $(SWEEP_ID) $(apply_options) $(if $(CONFIG),--config=$(CONFIG))

.PHONY: rollback
rollback: $(READY) ## Undo the last confirmed apply on INVENTORY's nodes; shows what drifted, YES=1 does it (NODE=)
	@$(TOKENPEAK) rollback --inventory $(INVENTORY) $(apply_options)

##@ Look
.PHONY: report
report: $(READY) ## Build the site from ARCHIVE (no database, node or network)
	@$(TOKENPEAK) report $(ARCHIVE)

.PHONY: notebook
notebook: $(VENV)/.jupyter ## Open the site's notebooks in Jupyter, for questions of your own
	@cd notebooks && exec ../$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/start.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: serve
serve: $(READY) ## Serve the site on this machine while a sweep runs
	@$(TOKENPEAK) serve

.PHONY: publish
publish: $(READY) ## Send the built site to DEST (TARGET=dir|rsync|ghpages|s3)
	@$(if $(DEST),,$(error Say where to: make publish TARGET=dir DEST=/var/www/tokenpeak))$(TOKENPEAK) publish $(TARGET) $(DEST)

##@ Trust
.PHONY: calibrate
calibrate: $(READY) ## Measure the load client's own error here (INVENTORY=x: on the way to its node)
	@$(TOKENPEAK) calibrate $(if $(inventory_typed),--inventory $(INVENTORY))

##@ Develop
.PHONY: setup
setup: $(READY) ## Make the locked environment in .venv (other targets do it themselves)

.PHONY: check
check: .lint .types ## Lint and type-check everything, audit the dependencies (make -j2: both at once)

.lint: $(READY)
	$(BIN)/ruff check analysis tests notebooks
	$(BIN)/ruff format --check analysis tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/yamllint --strict .
	cd playbooks && ANSIBLE_HOME=$(CURDIR)/.ansible PATH=$(CURDIR)/$(BIN):$$PATH ../$(BIN)/ansible-lint --offline -q
	$(BIN)/nbstripout --verify $(filter-out notebooks/start.ipynb,$(wildcard notebooks/*.ipynb notebooks/questions/*.ipynb))
	$(BIN)/python .ci/audit

.types: $(READY)
	$(BIN)/mypy

# The folders that are left out have long tests alone, which each process would import to leave them out itself.
.PHONY: test
test: $(READY) ## Run the fast tests (three to six minutes on two cores; ORDER=random or a seed: shuffled)
	$(BIN)/pytest -m "not (integration or e2e or faults or front_door or many_nodes)" $(addprefix --ignore=tests/,e2e faults front_door many_nodes rig) -n 4 --dist loadfile --no-loadscope-reorder $(if $(ORDER),-p randomly $(if $(filter 'random',$(ORDER)),,--randomly-seed=$(ORDER))) --durations=25

.PHONY: integration
integration: $(READY) ## Run the tests of whole parts: sweeps, built sites, a browser, Postgres (minutes)
	$(BIN)/pytest -m "integration and not e2e" -n 4 --dist loadfile --no-loadscope-reorder --durations=25

.PHONY: golden
golden: $(READY) ## Renew what tests compare, the golden site and the start notebook's outputs, and say what changed
	@PYTHONPATH=tests $(BIN)/python tests/report/golden_site.py

.PHONY: e2e
e2e: $(READY) ## Run the long tests: real vLLM sweeps, nodes with systemd and sshd (E2E=tests/e2e: a part)
	$(BIN)/pytest -s -m e2e --durations=15 $(E2E)

.PHONY: bench
bench: $(READY) ## Measure the load client's accuracy and CPU time against targets and `vllm bench serve`
	PYTHONPATH=tests $(BIN)/python -m benchmarks.load_generator

.PHONY: faults
faults: $(READY) ## Strike at sweeps in every phase and print the fault matrix (FAULTS=ci: a part)
	$(BIN)/pytest -v -m $(if $(filter 'ci',$(FAULTS)),faults_ci,faults) -n $(FAULT_NODES) --dist loadgroup tests/faults tests/rig tests/node tests/sweep

.PHONY: chaos
chaos: $(READY) ## Strike at RUNS sweeps with faults drawn from SEED (ONLY=seed: again)
	PYTHONPATH=.:tests $(BIN)/python -m tests.chaos.run --seed $(SEED) --runs $(RUNS) $(if $(ONLY),--only $(ONLY))

.PHONY: many-nodes
many-nodes: $(READY) ## Sweep many nodes, kill the controller of 50 at work (NODES="1 12 50 200": an hour)
	NODES=$(NODES) $(BIN)/pytest -v -s -m many_nodes tests/many_nodes

.PHONY: front-door
front-door: $(READY) ## Run every documented command as typed, in a clean clone (FRONT_DOOR=long: the long ones too)
	$(BIN)/pytest -v -m front_door tests/front_door

.PHONY: wheel
wheel: $(READY) ## Build the package for users: dist/tokenpeak-….whl, with playbooks, notebooks and examples
	@$(BIN)/hatchling build -t wheel -d dist

.PHONY: lock
lock: $(UV) ## Compile the locks: exact versions and hashes, no addresses
	@$(index); set -x; \
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make lock" --upgrade -q -o requirements.lock && \
	$(UV) pip compile --group notebook --constraint requirements.lock --override notebooks/overrides.in \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" --upgrade -q -o notebooks/requirements.lock && \
	$(PYTHON) .ci/lock_engine $(UV)

.PHONY: clean
clean: ## Remove the environment, caches and the built site, end the demonstration servers; results stay
	@PYTHONPATH=analysis $(PYTHON) -m tokenpeak.sim.install --end
	rm -rf $(VENV) .tokenpeak site/build site/.build* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .ansible dist

# pip's index, when the machine is set up for a mirror, is uv's too.
define index
index="$$($(PYTHON) -m pip config get global.index-url 2>/dev/null || true)"; \
export UV_SYSTEM_CERTS="$${UV_SYSTEM_CERTS:-1}" UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-$${PIP_INDEX_URL:-$$index}}}"; \
[ -n "$$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX
endef

# uv comes through pip, else through a venv's pip, as requirements.lock has it: never from PATH, where any version may be.
$(UV): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "TokenPeak needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=python3.12, for example." >&2; exit 1; }
	@rm -rf .tokenpeak/locked-uv && mkdir -p .tokenpeak
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > .tokenpeak/uv.lock
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -m pip install -q --disable-pip-version-check --root-user-action=ignore --require-hashes --only-binary :all: -r .tokenpeak/uv.lock --target .tokenpeak/locked-uv; \
	else \
	  $(PYTHON) -m venv .tokenpeak/locked-uv && \
	    .tokenpeak/locked-uv/bin/pip install -q --require-hashes --only-binary :all: -r .tokenpeak/uv.lock || \
	  { echo "TokenPeak needs pip or venv once, to get uv: apt-get install python3-venv" >&2; exit 1; }; \
	fi
	@touch $@

$(READY): requirements.lock pyproject.toml | $(UV)
	@echo "Setting up .venv from requirements.lock (once) …"
	@$(index); \
	[ -x $(BIN)/python ] || $(UV) venv -q --python "$$(command -v $(PYTHON))" $(VENV); \
	$(UV) pip sync -q --require-hashes --python $(BIN)/python requirements.lock && \
	$(UV) pip install -q --no-deps --no-build-isolation --no-index --python $(BIN)/python -e .
	@touch $@

# Jupyter is no part of the environment until somebody asks for it.
$(VENV)/.jupyter: $(READY) notebooks/requirements.lock
	@echo "Adding Jupyter from notebooks/requirements.lock (once) …"
	@$(index); $(UV) pip install -q --require-hashes --no-deps --python $(BIN)/python -r notebooks/requirements.lock
	@touch $@
