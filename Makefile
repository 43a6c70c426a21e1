# One entry for people and CI. `make` alone lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# Those that take longest come first, so that none of them is left alone at the end. Of these the
# ones that wait for servers are in front: on a fresh machine the vendors' SDKs compile meanwhile.
PKG ?= ./ledger/postgres ./broker/rabbitmq ./broker/sqs ./internal/e2e ./cmd/worker/app ./internal/protocol ./ledger/memory ./internal/outage ./ledger/sqlite \
	./consumer ./job/jobtest ./job ./...
# Packages tested at once: one more than cores, since most of them wait for servers. Each may start servers of its own, so
# many more are not faster.
P ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n > 3 ? 4 : n + 1 )))
# Tests of one package that run side by side. They wait for servers and processes most of the
# time, so there are more than cores.
PARALLEL ?= $(shell echo $$(( $(P) > 3 ? 8 : 4 )))
# A package that hangs is killed with its goroutines printed. Loose: two cores may be busy with other things.
TIMEOUT ?= 20m
# The race detector, but not in SQLite itself, which is C in the words of Go and four times as
# slow with it. Its driver and all that calls it keep it. Nor in the search of internal/protocol, which has one goroutine.
# Tables for debuggers are a sixth of what there is to compile, and on a fresh machine that is most of a run; panics and the detector do without.
# make check vets, and all of it; go test would do a part of that again.
LEAN = -dwarf=false
RACE = -race -gcflags=all=$(LEAN) "-gcflags=modernc.org/sqlite/lib=-race=false $(LEAN)" "-gcflags=modernc.org/libc=-race=false $(LEAN)" \
	"-gcflags=github.com/paidonce/paidonce/internal/protocol=-race=false $(LEAN)"
# How long each fuzz test runs.
FUZZTIME ?= 1m
# Extra flags of go test, e.g. make test FLAGS='-run Claim -v'
FLAGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## the whole story on one screen, nothing installed but Go
	$(GO) run ./cmd/worker demo

.PHONY: build
build: ## bin/worker, static and stripped
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/worker ./cmd/worker

.PHONY: test
test: ## every test with the race detector, on Postgres, PgBouncer, RabbitMQ and moto of its own
	@tools/need.sh $(GO) test $(RACE) -vet=off -timeout $(TIMEOUT) -p $(P) -parallel $(PARALLEL) $(FLAGS) $(PKG)

.PHONY: size
size: ## memory and idle CPU of the released worker with 1,000 calls under way
	@tools/need.sh $(GO) test -tags size -run Thousand -v ./internal/outage

.PHONY: bench
bench: ## a short comparison with other systems, on a Postgres and a RabbitMQ of its own; docs/performance.md has the long one
	@tools/need.sh $(GO) -C bench run . short

.PHONY: proof
proof: ## 500 jobs under faults and SIGKILL: the plain recipe, hold, replay and reconcile side by side, and what each paid
	@tools/need.sh $(GO) test -run '^TestProof$$' -timeout $(TIMEOUT) -v ./internal/e2e -proof 500

.PHONY: races
races: ## the races of the ledgers' suite on Postgres with all their rounds, where make test runs a part of them
	@tools/need.sh $(GO) test $(RACE) -timeout $(TIMEOUT) -run '^TestLedger' -count 1 ./ledger/postgres -whole

.PHONY: protocol
protocol: ## the model of the state rules with one fault more in every scenario: ten minutes, 10 GB
	$(GO) test -timeout 3h -v ./internal/protocol -run '^TestProtocol$$' -deep

# make storm draws a seed; SEED=… replays one.
SEED ?= $(shell echo $$RANDOM)
DURATION ?=

.PHONY: storm
storm: ## DURATION (3m) of random kills, cuts, restarts and failovers under load, and a check of the whole history; SEED=n replays
	@tools/need.sh $(GO) test -run '^TestStorm$$' -timeout 2h -v ./internal/e2e -seed $(SEED) -for $(or $(DURATION),3m)

.PHONY: soak
soak: ## DURATION (30m) of steady load with resets: memory, goroutines and open files of a worker must stay flat
	@tools/need.sh $(GO) test -tags soak -run '^TestSoak$$' -timeout 24h -v ./internal/e2e -soak $(or $(DURATION),30m)

.PHONY: simulate
simulate: ## SEEDS histories (20000) of three workers under simulated time and seeded faults, checked; FROM=1 is the first
	$(GO) test ./internal/simulate -count 1 -run '^TestSeeds$$' -timeout $(TIMEOUT) -v -seeds $(or $(SEEDS),20000) -from $(or $(FROM),1)

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME each (1m), e.g. make fuzz FUZZTIME=20s
	@GO='$(GO)' tools/fuzz.sh $(FUZZTIME)

.PHONY: check
check: ## what must hold before a commit: formatting, vet, staticcheck, go fix, repository rules
	@GO='$(GO)' RACE='$(RACE)' tools/check.sh

.PHONY: fmt
fmt: ## rewrite the sources as gofmt and go fix want them
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')
	$(GO) fix ./...

.PHONY: up
up: ## Postgres, RabbitMQ, an SQS emulator and a mail sink in containers, ready when it returns
	docker compose up --detach --wait

.PHONY: down
down: ## stop those containers, workers too; volumes stay
	docker compose --profile worker --profile worker-sqs down

.PHONY: e2e-compose
e2e-compose: ## a worker on each broker in containers: duplicates, one line on the bill for each key
	@tools/e2e-compose.sh
