# The steps for the image. The Dockerfile runs them in its stages, and CI runs them without Docker: make image-test.

# TAGS=noembedded omits the embedded NATS server.
TAGS  ?=
IMAGE ?= millrace:$(VERSION)

# The modification time of all files in the image, so that two builds of a commit are identical.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

IMAGE_DIR  := bin/image
IMAGE_ROOT := $(IMAGE_DIR)/root
IMAGE_LIB  := $(IMAGE_DIR)/kernels/libmillrace.so

# Size limits of the parts, in MiB. docs/adr/0021 lists the actual sizes.
WORKER_MIB := 37
LEAN_MIB   := 28
LIB_MIB    := 2
ROOT_MIB   := 40

# The binary doesn't depend on the machine, the folder or the time of the build.
IMAGE_BUILD = CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags '-s -w -buildid= $(LDFLAGS)'

.PHONY: image image-kernels image-worker image-root image-sizes image-test

image: ## Build the container image with Docker
	docker build -t $(IMAGE) --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --build-arg TAGS=$(TAGS) \
		--build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) .

image-kernels: ## Build the image's kernel library (needs nvcc, no GPU)
	$(MAKE) -C kernels BUILD=$(abspath $(IMAGE_DIR))/kernels LINEINFO= all symbols

image-worker: ## Build the image's worker (TAGS=noembedded: without the NATS server)
	$(IMAGE_BUILD) -tags '$(TAGS)' -o $(IMAGE_DIR)/worker ./cmd/worker

image-root: ## Lay out the image's files under bin/image/root and check their sizes
	@for made in $(IMAGE_DIR)/worker $(IMAGE_LIB); do \
		test -f $$made || { echo "$$made is missing: make image-kernels image-worker" >&2; exit 1; }; done
	rm -rf $(IMAGE_ROOT)
	install -d $(IMAGE_ROOT)/opt/millrace
	install -m 755 $(IMAGE_DIR)/worker $(IMAGE_ROOT)/opt/millrace/
	install -m 644 LICENSE $(IMAGE_ROOT)/opt/millrace/
	install -s -m 644 $(IMAGE_LIB) $(IMAGE_ROOT)/opt/millrace/
	tools/image/notices $(IMAGE_DIR)/worker >$(IMAGE_ROOT)/opt/millrace/NOTICES
	find $(IMAGE_ROOT) -exec touch -h -d @$(SOURCE_DATE_EPOCH) {} +
	@tools/image/budget $(IMAGE_ROOT)/opt/millrace/worker=$(WORKER_MIB) $(IMAGE_ROOT)/opt/millrace/libmillrace.so=$(LIB_MIB) \
		$(IMAGE_ROOT)=$(ROOT_MIB)

image-sizes: ## Build the image's worker with and without the NATS server and print the sizes
	$(IMAGE_BUILD) -o $(IMAGE_DIR)/worker ./cmd/worker
	$(IMAGE_BUILD) -tags noembedded -o $(IMAGE_DIR)/worker-noembedded ./cmd/worker
	@tools/image/budget $(IMAGE_DIR)/worker=$(WORKER_MIB) $(IMAGE_DIR)/worker-noembedded=$(LEAN_MIB)

image-test: ## Run the Dockerfile's steps without Docker and start the worker from the resulting files (needs nvcc and root)
	cd tools/image/test && go test -count=1 ./...
