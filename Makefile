# filo's commands. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Every module of the repository: the root and each nested one. What has a go.mod is tested and linted.
MODULES := $(patsubst %/,%,$(sort $(dir $(wildcard go.mod */go.mod */*/go.mod))))

ADDR      ?= 127.0.0.1:8080
ARGS      ?=
COUNT     ?= 1
TIMEOUT   ?= 14m
FUZZTIME  ?= 1m
SOAKTIME  ?= 10m
STRESSTIME ?= 1m
BASE      ?= main
BENCH     ?= .
BENCHTIME ?= 1s

# Modules whose tests need less than 10 MB of other modules than the root's do.
LIGHT := . contrib/jwt contrib/websocket

# The tests of the root package: those that use its exported API alone stand in folders, which run side by side.
ROOT := . ./internal/test/...

TESTRUN   := .bin/testrun
TESTFLAGS := -vet=off -shuffle=on -count=$(COUNT) -timeout=$(TIMEOUT)

# FETCHES is an awk program that says of a go.mod which modules of others it requires.
define FETCHES
/^require/ { block++ }
block == 1 && $$2 ~ /^v[0-9]/ && $$1 !~ /filohttp/ { if (n++ < 2) names = names (n > 1 ? ", " : "") $$1 }
END { printf "skipped: module %s (fetches %s%s): make check\n", module, names, (n > 2 ? " and " n - 2 " more" : "") }
endef
export FETCHES

# in-modules runs $(1) in every module, goes on after a failure, and fails at the end if one failed.
define in-modules
	failed=; \
	for module in $(MODULES); do \
		echo "== $$module"; \
		( cd "$$module" && $(1) ) || failed="$$failed $$module"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

.PHONY: help run test check foreign ants arm64 race race-nested race-blocking fuzz ossfuzz soak chaos stress bench-quick bench-http2 bench bench-all bench-compare bench-go lint vulncheck tidy cover deps release release-files release-test api site

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 15

run: ## start examples/echo on ADDR (default 127.0.0.1:8080); more flags in ARGS
	@cd examples && go build -o ../.bin/echo ./echo
	@exec .bin/echo -addr '$(ADDR)' $(ARGS)

$(TESTRUN): internal/testrun/main.go
	@go build -o $@ ./internal/testrun

test: $(TESTRUN) ## test what needs few other modules: the root, its packages and some others. No network with a warm module cache
	@status=0; $(TESTRUN) $(LIGHT) -- $(TESTFLAGS) ./... || status=$$?; \
	for module in $(filter-out $(LIGHT),$(MODULES)); do awk -v module="$$module" "$$FETCHES" "$$module/go.mod"; done; \
	exit $$status

# Modules whose code no user runs, or that put others together. The race detector would compile all that they require once more.
UNRACED := arena/httparena bench deploy docs/check examples examples/model examples/recipes tools

check: $(TESTRUN) ## everything: lint, test, the race detector, both drivers, another processor, and the suites of others; goes on after a failure
	@# Two parts run at once, since each waits now and then. Lint begins, since it compiles what others test: two that
	@# compile the same at the same time do it twice. The tests of ants wait for minutes, so they don't come last.
	@# Without debug information, which no check reads, all that is compiled takes an eighth less time.
	@GOFLAGS="$$(go env GOFLAGS) -gcflags=all=-dwarf=false" $(MAKE) --no-print-directory --jobs=2 --keep-going \
		lint race ants foreign unraced race-nested test arm64 race-blocking

foreign: ## run tests of others against filo: for HTTP by Go, x/net and h2spec, of WebSocket, RPC and router packages, for gRPC by Connect, for caches (with node), and of RFCs by Cowboy (with Erlang)
	@go run ./internal/foreign -count $(COUNT) $(ARGS)
	@# Go's own and h2spec once more with the blocking driver, which the suite x/net always has.
	@go run ./internal/foreign -count $(COUNT) -suite net/http,h2spec -driver blocking $(ARGS)

ants: ## run the tests that ants has for its users against pool/, COUNT times
	@go run ./internal/antstest -count $(COUNT)

arm64: $(TESTRUN) ## test the root package as compiled for arm64, in an emulator (which keeps this machine's memory order)
	@GOARCH=arm64 CGO_ENABLED=0 $(TESTRUN) -name arm64 . -- -exec qemu-aarch64 $(TESTFLAGS) $(ROOT)

# abuse, chaos and trials are tools, whose own tests take long under the race detector, and share little.
race: $(TESTRUN) ## test the root module under the race detector, COUNT times
	@$(TESTRUN) -name race . -- $(TESTFLAGS) -race $$(go list ./... | grep -vE '/internal/(abuse|chaos|trials)(/|$$)')

race-nested: $(TESTRUN) ## the same for the other modules that users run
	@$(TESTRUN) -name nested $(filter-out . $(UNRACED),$(MODULES)) -- $(TESTFLAGS) -race ./...

race-blocking: $(TESTRUN) ## test the root package with the blocking driver under the race detector, COUNT times
	@FILO_DRIVER=blocking $(TESTRUN) -name blocking . -- $(TESTFLAGS) -race $(ROOT)

.PHONY: unraced
unraced: $(TESTRUN)
	@$(LEAN) $(TESTRUN) -name unraced $(filter-out $(LIGHT),$(UNRACED)) -- $(TESTFLAGS) ./...

fuzz: ## run each fuzz target of every module for FUZZTIME (default 1m)
	@for folder in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		for target in $$(cd "$$folder" && go test -list '^Fuzz' . | grep '^Fuzz' || true); do \
			echo "== $$folder $$target"; \
			( cd "$$folder" && go test -run '^$$' -fuzz "^$$target\$$" -fuzzminimizetime 200x -fuzztime '$(FUZZTIME)' . ); \
		done; \
	done

ossfuzz: ## build every fuzz target with libFuzzer, as OSS-Fuzz does, and run it a thousand times (needs clang and zip)
	@rm -rf .bin/ossfuzz; mkdir -p .bin/ossfuzz/out .bin/ossfuzz/work
	@OUT='$(CURDIR)/.bin/ossfuzz/out' WORK='$(CURDIR)/.bin/ossfuzz/work' CXX=clang++ CXXFLAGS=-fsanitize=address \
		LIB_FUZZING_ENGINE=-fsanitize=fuzzer ossfuzz/build.sh
	@cd .bin/ossfuzz/work && for seeds in ../out/*_seed_corpus.zip; do \
		target="$${seeds%_seed_corpus.zip}"; echo "== $${target##*/}"; \
		"$$target" -runs=1000 2>"$${target##*/}.log" || { tail -n 30 "$${target##*/}.log"; exit 1; }; \
	done

soak: ## run mixed work against a server for SOAKTIME (default 10m), check every answer and look for leaks; flags in ARGS
	@go build -o .bin/soak ./internal/soak
	@exec .bin/soak -duration '$(SOAKTIME)' $(ARGS)

chaos: ## run the soak with random pauses before statements, stops and clock steps, by 1 to 16 processors: about 10 minutes; flags in ARGS
	@go run ./internal/chaos $(ARGS)

.PHONY: trials
trials: ## networks and systems that fail: lost packets, failing system calls, little memory, a full disk (root, Linux): about 10 minutes; flags in ARGS
	@go run ./internal/trials $(ARGS)

stress: ## close connections from outside while they are served, parked, timed out and taken over, for STRESSTIME (default 1m)
	FILO_STRESS='$(STRESSTIME)' go test -race -count=1 -timeout=$(TIMEOUT) -run '^TestCloseStress$$' -v ./internal/test/shutdown

bench-quick: ## compare filo, fasthttp and net/http in five rows: five minutes once built; options in ARGS
	@cd bench && go run ./cmd/compare -size quick $(ARGS)

bench-http2: ## compare filo's HTTP/2 with that of net/http, nghttpd, h2o and nginx: about 13 minutes; options in ARGS
	@cd bench && go run ./cmd/compare -size http2 $(ARGS)

bench: ## compare them in every row, and the others in four: about 55 minutes; writes docs/BENCHMARKS.md
	@cd bench && go run ./cmd/compare $(ARGS)

bench-all: ## compare all of them in every row; goes on where it was interrupted
	@cd bench && go run ./cmd/compare -size all $(ARGS)

bench-compare: ## compare this revision of filo with BASE
	@cd bench && go run ./cmd/compare -base '$(BASE)' $(ARGS)

bench-go: ## run the in-process benchmarks; BENCH selects, BENCHTIME is each one's time
	go test -run '^$$' -bench '$(BENCH)' -benchtime '$(BENCHTIME)' -benchmem ./...
	cd bench && go test -run '^$$' -bench '$(BENCH)' -benchtime '$(BENCHTIME)' -benchmem ./...

lint: ## gofmt, and the analyzers of go vet and staticcheck, on every module, the types of the root module for other systems, the English of comments and documents, and the workflows
	@# The versions of staticcheck and actionlint are pinned by tools/go.mod, as is that of govulncheck. Command lint has go vet's analyzers, too.
	@cd tools && go build -o ../.bin/ github.com/rhysd/actionlint/cmd/actionlint ./lint ./typecheck ./prose
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	@$(call in-modules,$(LEAN) "$(CURDIR)/.bin/lint" ./...)
	@.bin/lint -tags libfuzzer ./internal/libfuzzer
	@echo "== for $(SYSTEMS)"; .bin/typecheck $(SYSTEMS)
	@echo "== English"; .bin/prose
	@# Without the programs that it calls if they are installed, so that it finds the same everywhere.
	@echo "== workflows"; .bin/actionlint -shellcheck= -pyflakes=

# Frameworks in bench/ compile without the JSON and msgpack packages that they don't need there, which are two thirds of its dependencies.
LEAN := GOFLAGS="$$(go env GOFLAGS) -tags=nomsgpack,stdjson,gjson"

# Besides linux/amd64, on which the tests run.
SYSTEMS := darwin/arm64 freebsd/amd64 windows/amd64 linux/386

vulncheck: ## look for published vulnerabilities that a module's code reaches, Go's own included (asks vuln.go.dev)
	@cd tools && go build -o ../.bin/ golang.org/x/vuln/cmd/govulncheck
	@$(call in-modules,"$(CURDIR)/.bin/govulncheck" ./...)

release: build-release ## check, commit and tag VERSION (v0.1.0): the tags are pushed by hand
	@.bin/release '$(VERSION)'

# The bills take a program that compiles for a minute, and that nothing else needs.
.PHONY: build-bills
build-bills: build-release
	@cd tools && go build -o ../.bin/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

release-files: build-bills ## write the zip of each module of VERSION, whose tags are checked out, and its SBOM into .bin/release
	@.bin/release -files '$(VERSION)'

release-test: build-bills ## make that release in a clone (default v0.1.0), and install and use every module of it from outside
	@.bin/release -test '$(or $(VERSION),v0.1.0)'

api: build-release ## say how the API differs from BASE's, and fail if the changelog doesn't name what breaks users
	@.bin/release -api '$(BASE)'

.PHONY: build-release
build-release:
	@cd tools && go build -o ../.bin/ ./release golang.org/x/exp/cmd/apidiff

site: ## make pages of the documents, with search, into .bin/site (needs node and npm's registry); for a base path ARGS='--base /filo/'
	@cd site && npm ci --silent --ignore-scripts
	@{ printf '# API\n\nEvery package, with its page on pkg.go.dev.\n\n'; for module in $(filter . contrib/%,$(MODULES)); do \
		( cd "$$module" && go list -f '{{if ne .Name "main"}}- [`{{.ImportPath}}`](https://pkg.go.dev/{{.ImportPath}}) {{.Doc}}{{end}}' ./... ); \
	done | sed -E '/\/internal[/`]/d; s/\) Package [a-z0-9]+ /) /'; } >site/api.md
	@cd site && npx vitepress build $(ARGS)
	@echo "the pages are in .bin/site; to look at them: cd site && npx vitepress preview $(ARGS)"

tidy: ## go mod tidy in every module
	@$(call in-modules,go mod tidy)

cover: ## statement coverage of the server, the root package and those below it; the profile is .cover/root.out
	@mkdir -p .cover
	@server=$$(go list -deps . | grep '^github.com/filohttp/filo'); \
	go test -coverpkg=$$(echo $$server | tr ' ' ',') -coverprofile=.cover/root.out $(ROOT) $$server
	@go tool cover -func=.cover/root.out | tail -n 1

deps: ## install what the tests call: curl, nc, wrk, ab, h2load, strace, ip, chromium, redis-server, haproxy, nginx, promtool, systemd, qemu-aarch64 and a C compiler for -race (Debian, Ubuntu)
	@missing=; \
	need() { command -v "$$1" >/dev/null || missing="$$missing $$2"; }; \
	need curl curl; need nc netcat-openbsd; need wrk wrk; need ab apache2-utils; \
	need h2load nghttp2-client; need strace strace; need ip iproute2; need chromium chromium; need qemu-aarch64 qemu-user; \
	need redis-server redis-server; need haproxy haproxy; need nginx nginx-light; need promtool prometheus; need systemd-socket-activate systemd; \
	if ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then missing="$$missing gcc libc6-dev"; fi; \
	if [ -z "$$missing" ]; then echo "deps: nothing is missing"; exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "deps: there is no apt-get here; install these with your package manager:$$missing" >&2; exit 1; \
	fi; \
	asroot=; \
	if [ "$$(id -u)" -ne 0 ]; then \
		command -v sudo >/dev/null || { echo "deps: run as root: apt-get install$$missing" >&2; exit 1; }; \
		asroot=sudo; \
	fi; \
	echo "deps: installing$$missing"; \
	$$asroot apt-get update -q; \
	$$asroot env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing
