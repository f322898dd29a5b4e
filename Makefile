# The common tasks. `make help` lists them.

# The chart's appVersion is the version of the image, the chart and the binary: the next release with -dev, until make release.
VERSION ?= $(or $(shell sed -n 's/^appVersion: "\(.*\)"$$/\1/p' helm/millrace/Chart.yaml 2>/dev/null),dev)
COMMIT  ?= $(or $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null),unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Linting needs no installation: go builds the linter once, outside this module.
LINTER := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Runs the tests, lists the skipped tests with the reasons, and keeps a record for make slowest.
GOTESTSUM := gotest.tools/gotestsum@v1.13.0
RECORD    := bin/tests.json

# Packages with concurrent goroutines. The tests of the other packages run the same code again from end to end, or use
# no goroutines.
RACE := ./internal/streams ./internal/device/conformance ./internal/device/host ./internal/device/sim \
	$(addprefix ./internal/ingest/,inflight lease/... lookup pull quarantine results stall store) ./cmd/worker

# Packages with files that build tags select.
TAGGED = $(shell grep -rlE --include='*.go' '^//go:build .*(faults|invariants|noembedded)' cmd internal | xargs -n1 dirname | sort -u | sed 's|^|./|')

# Packages whose tests detect misuse of buffers and events.
INVARIANTS := ./internal/device/... ./internal/streams/... ./internal/ingest/...

# The files that a GPU machine without Go needs in addition to the sources. See tools/gpu-check. The dictionary of the compression holds all
# programs, which have much code in common.
BUNDLE       := .gpu
BUNDLE_TESTS := device/conformance device/cuda operator streams ingest faults
BUNDLE_MIB   := 44

# Tests of the chart that need promtool: make alerts-test runs them.
PROMTOOL_TESTS := TestOwnRules|TestChangedAlerts|TestNoWorkers|TestBacklogGoal

FUZZTIME ?= 10s

.DEFAULT_GOAL := help
.PHONY: help version build test slowest page race invariants nocgo lint fuzz-short faults faults-full faults-ci kernels kernels-check gpu-bundle screenshots gpu-check ci clean mutations model-spin path alerts-test chart-test chart-docs chart-cluster chart-e2e

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

version: ## Print the version of image, chart and binary
	@echo $(VERSION)

build: ## Build the worker into bin/
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/worker ./cmd/worker

# This runs four packages at a time, because tests wait as often as they compute. The package that waits longest is the
# first.
test: ## Run every test but the faults and those of the timeline page, and list what was skipped; none needs a GPU or a server
	@mkdir -p $(dir $(RECORD))
	go run $(GOTESTSUM) --format standard-quiet --jsonfile $(RECORD) -- -p 4 ./internal/ingest ./...

page: ## Test the timeline page in Chromium (1 minute)
	MILLRACE_PAGE=1 go test -run 'TestPage|TestPicture' ./cmd/worker

slowest: ## List the 20 slowest tests of the last make test
	@go run $(GOTESTSUM) tool slowest --num 20 --threshold 0s --jsonfile $(RECORD)

# This doesn't run vet, because make test and make lint run it.
race: ## Run the tests of packages in which goroutines meet with the race detector, and with checks for misuse of buffers and events
	go test -short -race -vet=off -tags invariants $(RACE)
	go test -short -vet=off -tags invariants ./internal/ingest

invariants: ## Run the device, pipeline and ingest tests with checks for misuse of buffers and events
	go test -tags invariants $(INVARIANTS)

nocgo: ## Build the worker and run the device tests without cgo
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/worker-nocgo ./cmd/worker
	CGO_ENABLED=0 go test ./internal/device/...

lint: ## Run golangci-lint (the first time builds it: a minute or two)
	go run $(LINTER) run --allow-parallel-runners ./...
	go run $(LINTER) run --allow-parallel-runners --build-tags faults,invariants,noembedded --enable-only depguard,forbidigo,govet $(TAGGED)
	go run -exec 'env CGO_ENABLED=0 GOOS=darwin' $(LINTER) run --allow-parallel-runners --enable-only depguard ./...
	cd examples/operators/compare && go run $(LINTER) run --allow-parallel-runners ./...
	cd tools/image/test && go run $(LINTER) run --allow-parallel-runners ./...
	cd helm && go run $(LINTER) run --allow-parallel-runners ./...
	cd helm/test && go run $(LINTER) run --allow-parallel-runners --build-tags e2e ./...
	cd helm/oldest && go run $(LINTER) run --allow-parallel-runners ./...
	cd helm/natscli && go run $(LINTER) run --allow-parallel-runners ./...

fuzz-short: ## Run every fuzz target for FUZZTIME (10s)
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

faults: ## Inject every fault into real processes a few times (10 minutes)
	MILLRACE_FAULTS=short go test -count=1 -timeout 1h ./internal/faults

faults-full: ## Inject every fault repeatedly and print a record (20 minutes; MILLRACE_FAULTS_SOAK=3m shortens the soak)
	cd internal/faults && MILLRACE_FAULTS=full go test -count=1 -timeout 3h

faults-ci: ## Inject the faults that CI injects, one or two of each kind (2 minutes)
	MILLRACE_FAULTS=ci go test -count=1 -timeout 30m ./internal/faults

mutations: ## Check that the model of the lease finds faults in the lease (an hour; MILLRACE_MUTATIONS is the number of steps for each)
	MILLRACE_MUTATIONS=$(or $(MILLRACE_MUTATIONS),3000000) go test -count=1 -timeout 4h -run '^TestModelFindsMutations$$' ./internal/ingest/lease

model-spin: ## Check the model of exactly-once delivery with spin (Debian's package spin; about 10 minutes)
	tools/model-spin

path: ## Count the packages and files that one message executes (a minute; tools/path files lists them)
	tools/path

alerts-test: ## Test the alerts and the dashboard, with promtool and a real Prometheus (Debian's package prometheus has both)
	promtool check rules helm/millrace/files/rules.yaml
	promtool test rules helm/rules/*.yaml
	cd helm && go test -count=1 ./...
	cd helm/test && MILLRACE_REQUIRE_PROMETHEUS=1 go test -count=1 -run '$(PROMTOOL_TESTS)' .
	MILLRACE_FAULTS=short MILLRACE_REQUIRE_PROMETHEUS=1 go test -count=1 -v -run '^TestAlerts' ./internal/faults

chart-test: ## Render the chart in every mode, decode it strictly, lint it, and try wrong values
	cd helm/test && go test -count=1 -skip '$(PROMTOOL_TESTS)'

chart-docs: ## Generate helm/millrace/README.md from values.yaml, and the names of the values from values.schema.json
	cd helm/test && go test -count=1 -run '^TestNamesAreThoseOfTheSchema$$' -update
	cd helm/test && go tool helm-docs --chart-search-root ../millrace --sort-values-order file --log-level warning

chart-cluster: ## Build API servers and etcd in the versions of helm/cluster into bin/cluster (6 minutes for each of two servers, on 2 cores)
	cd helm/cluster && version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
		go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o ../../bin/cluster/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver && \
		go build -trimpath -ldflags '-s -w' -o ../../bin/cluster/etcd go.etcd.io/etcd/server/v3
	cd helm/cluster/oldest && version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
		stamp=k8s.io/component-base/version && \
		go build -trimpath -ldflags "-s -w -X $$stamp.gitVersion=$$version -X $$stamp.gitMajor=1 -X $$stamp.gitMinor=29" -o ../../../bin/cluster/kube-apiserver-1.29 k8s.io/kubernetes/cmd/kube-apiserver

chart-e2e: chart-cluster ## Install the chart on that API server
	cd helm/test && go vet -tags e2e && MILLRACE_CLUSTER=$(CURDIR)/bin/cluster go test -tags e2e -count=1 -run TestCluster -v

kernels: ## Build kernels/build/libmillrace.so, the libraries for tests, and the yardstick (needs nvcc, no GPU)
	$(MAKE) -C kernels all faulty library yardstick symbols

kernels-check: ## Test the kernels' arithmetic on the CPU (needs only a C++ compiler)
	$(MAKE) -C kernels check

gpu-bundle: ## Build everything that a GPU machine without Go needs into .gpu/
	rm -rf $(BUNDLE) && mkdir -p $(BUNDLE)
	CGO_ENABLED=1 go build -trimpath -ldflags '-s -w $(LDFLAGS)' -o $(BUNDLE)/worker ./cmd/worker
	go build -trimpath -ldflags '-s -w' -o $(BUNDLE)/nats-server github.com/nats-io/nats-server/v2
	set -e; for package in $(BUNDLE_TESTS); do \
		CGO_ENABLED=1 go test -c -trimpath -ldflags '-s -w' -o $(BUNDLE)/$${package##*/}.test ./internal/$$package; \
	done
	if [ -f kernels/build/libmillrace.so ]; then cp kernels/build/libmillrace.so $(wildcard kernels/build/libmillrace-faulty.so kernels/build/above_mean.so kernels/build/yardstick) $(BUNDLE)/; \
	else echo "kernels/build/libmillrace.so is missing (make kernels): the bundle is built without it" >&2; fi
	cd $(BUNDLE) && XZ_OPT=--lzma2=preset=2,dict=192MiB tar -cJf bundle.tar.xz * && find . -type f ! -name bundle.tar.xz -delete
	@du -sh $(BUNDLE); test $$(du -sm $(BUNDLE) | cut -f1) -le $(BUNDLE_MIB) || \
		{ echo "$(BUNDLE) is over $(BUNDLE_MIB) MiB" >&2; exit 1; }

screenshots: ## Take the screenshots of the timeline page for the documents (needs Chromium)
	MILLRACE_PAGE=1 MILLRACE_SCREENSHOTS=$(CURDIR)/docs/images go test -count=1 -run 'TestPageShowsADemo|TestPicture' ./cmd/worker

gpu-check: ## Check everything that needs a GPU, with the bundle (STEPS selects steps)
	tools/gpu-check $(STEPS)

ci: ## Run the continuous integration steps
	.ci/run

include image.mk

# The Dockerfile's stages don't have this file.
-include release.mk

clean: ## Remove build outputs
	rm -rf bin $(BUNDLE) gpu-out
	$(MAKE) -C kernels clean
