# Each target is one script or one command. `make` alone prints this help.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO     ?= go
GOARCH := $(shell $(GO) env GOARCH 2>/dev/null)
T      ?= 30s
PKG    ?= ./...
COUNT  ?= 1
STATIC  = CGO_ENABLED=0 GOOS=linux GOARCH=$(GOARCH) $(GO) build -trimpath -ldflags "-s -w"
GUEST   = kernel/guestbin/dist/sandbook-guest-linux-$(GOARCH)
SHIM    = backends/internal/shim/dist/sandbook-shim-linux-$(GOARCH)

.PHONY: help setup setup-run setup-test run build guest assets server gen gen-diff fmt vet lint layers unit check test race \
        conformance ui fuzz cover vuln bench doctor clean

help: ## print this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: setup-test ## install what server, tests and commits need (Debian, Ubuntu)
	@git config core.hooksPath .ci/hooks

setup-run:
	@.ci/setup run

setup-test:
	@.ci/setup test

run: setup-run build ## install what is missing, build, start with demo notebooks, print the link
	@exec .ci/serve --demo

build: guest assets server ## build the guest, the page's assets and bin/web

guest: # both small static programs that run beside or inside a sandbox
	@$(STATIC) -o $(GUEST) ./kernel/guest/sandbook-guest
	@$(STATIC) -o $(SHIM) ./backends/internal/shim/sandbook-shim

assets:
	@.ci/assets

server:
	@echo "building bin/web (the first time takes a few minutes)"
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/web ./cmd/web

gen: ## regenerate templ pages and sqlc queries
	@.ci/gen

gen-diff:
	@.ci/gen diff

fmt: ## format Go files
	@$$(.ci/tool golangci-lint) fmt

vet:
	@$(GO) vet $(PKG)

lint: ## golangci-lint, formatting included
	@$$(.ci/tool golangci-lint) run $(PKG)

layers: ## who may import whom, and other rules about the tree
	@.ci/gotest -count=1 -run 'TestLayers|TestTree' ./cmd/web

unit: ## fast tests
	@.ci/gotest -short $(PKG)

check: gen-diff vet lint layers unit ## before each commit: formatting, generated code, vet, lint, layers, fast tests

test: setup-test build ## install what tests need, then run every test there is
	@.ci/gotest -count=$(COUNT) -timeout 15m $(PKG)
	@.ci/ui

race: ## fast tests with the race detector, shuffled; not those that drive other programs
	@.ci/gotest -race -short -shuffle=on -timeout 15m $$($(GO) list $(PKG) | grep -vE '/cmd/|/backends/bubblewrap$$')

conformance: guest ## what each backend does and holds on this host, as a table
	@$(GO) test -count=1 -timeout 15m -run Conformance -v ./backends/...

ui: build ## journeys in a real browser, with axe and screenshots
	@.ci/ui

fuzz: ## every fuzz target for T each (T=30s)
	@.ci/fuzz $(T)

cover: ## coverage of the core, with the least it may have
	@.ci/cover

vuln: ## known vulnerabilities in what we import
	@.ci/vuln

bench: build ## measure beside Jupyter, on this machine, in one run
	@.ci/bench

doctor: build ## what this host can isolate, and what is missing
	@bin/web doctor

clean: ## remove what the build made
	@rm -rf bin coverage.out static/dist/* kernel/guestbin/dist/* backends/internal/shim/dist/*
