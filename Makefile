# Everything that is built, tested or shown starts here. On a Debian machine with rustup,
# `make demo` and `make test` need nothing done before them.
#
# One profile (dev) and one target folder for demo, tests and tools: RocksDB is compiled once.
# The variables below are part of cargo's fingerprint. Builds outside make use `eval "$(make -s env)"`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules

CACHE := $(HOME)/.cache/haltgate
VENV := $(CACHE)/venv

export CC := ccache gcc
export CXX := ccache g++
export CCACHE_DIR ?= $(HOME)/.cache/ccache
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(VENV)/bin:$(HOME)/.cargo/bin:$(PATH)

STEP := .ci/step
BASELINE := baseline.binpb

# Cargo resolves features over the packages it is given. All of them every time, or the demo, the
# tests and the tools would each compile their own tokio.
BUILD := cargo build --locked --workspace --bins
CLIPPY := cargo clippy --locked --workspace --all-targets -- -D warnings
# Every link in a doc comment leads somewhere.
DOC := env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: env
env: ## the variables of a build, for `eval "$(make -s env)"`
	@printf 'export CC=%q CXX=%q CCACHE_DIR=%q CARGO_TARGET_DIR=%q PATH=%q\n' \
	  "$$CC" "$$CXX" "$$CCACHE_DIR" "$$CARGO_TARGET_DIR" "$$PATH"

# --- set-up -----------------------------------------------------------------------------------------

.PHONY: setup
setup: ## install what building and testing need; quick when it is there
	@.ci/setup build test

.PHONY: setup-build
setup-build:
	@.ci/setup build

# --- build and show ---------------------------------------------------------------------------------

.PHONY: build
build: setup-build ## the binary `haltgate`
	@$(STEP) build $(BUILD)

.PHONY: demo
demo: build ## three nodes stop a runaway agent, lose their leader, and prove what they decided
	@$(CARGO_TARGET_DIR)/debug/haltgate demo

.PHONY: bench
bench: build ## the workload authorize-v1 on three local nodes; CONNECTIONS=64 DURATION=8
	@.ci/bench

.PHONY: figures
figures: ## lines, circles, lengths, places per setting and RPC; REF=commit, PLACES=1 to name them
	@.ci/figures $(if $(PLACES),--places) $(REF)

# --- checks -----------------------------------------------------------------------------------------

.PHONY: test
test: setup ## everything that CI checks, cheapest first
	@$(STEP) format   cargo fmt --all -- --check
	@$(STEP) protobuf $(MAKE) proto
	@$(STEP) deny     .ci/deny
	@$(STEP) clippy   $(CLIPPY)
	@$(STEP) doc      $(DOC)
	@$(STEP) build    $(BUILD)
	@$(STEP) tests    .ci/tests
	@$(STEP) doctests cargo test --locked --workspace --doc -q

.PHONY: fmt
fmt: ## format the sources
	@cargo fmt --all
	@cd proto && buf format -w

.PHONY: lint
lint: setup ## format, protobuf, clippy and doc comments only
	@$(STEP) format   cargo fmt --all -- --check
	@$(STEP) protobuf $(MAKE) proto
	@$(STEP) clippy   $(CLIPPY)
	@$(STEP) doc      $(DOC)

.PHONY: deny
deny: setup ## licences, sources and known flaws of what we depend on
	@.ci/deny

# The image is kept in the repository because a shallow clone has no earlier commit to compare with.
# The last line makes every new field part of it, so that it is protected from its first commit on.
.PHONY: proto
proto:
	@cd proto && buf lint && buf format -d --exit-code && buf breaking --against $(BASELINE)
	@cd proto && buf build --exclude-source-info -o - | cmp -s - $(BASELINE) \
	  || { echo 'proto/$(BASELINE) is behind the .proto files: run `make proto-baseline`' >&2; exit 1; }

.PHONY: proto-baseline
proto-baseline: setup ## take additions into the image that breaking changes are checked against
	@cd proto && buf lint && buf breaking --against $(BASELINE)
	@cd proto && buf build --exclude-source-info -o $(BASELINE)
