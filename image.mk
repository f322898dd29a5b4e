# The steps for the image. The Dockerfile runs them in its stages, and CI runs them without Docker: make image-test.

# TAGS=noembedded omits the embedded NATS server. NVRTC=1 adds NVRTC, which compiles the sources of operators on the node.
TAGS  ?=
NVRTC ?=
# The chart pulls the image of this name with image.repository=$(IMAGE_REPOSITORY).
IMAGE_REPOSITORY ?= millrace
IMAGE_TAG        := $(VERSION)$(if $(NVRTC),-nvrtc)
IMAGE            ?= $(IMAGE_REPOSITORY):$(IMAGE_TAG)
LOCAL_IMAGE      := millrace:$(IMAGE_TAG)

# The modification time of all files in the image, so that two builds of a commit are identical.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

IMAGE_DIR  := bin/image
IMAGE_ROOT := $(IMAGE_DIR)/root
IMAGE_LIBS := $(IMAGE_DIR)/lib

# NVRTC in the CUDA toolkit. The library of its built-in functions needs the C++ library, which the image's base doesn't
# have.
NVRTC_FILE  = $(firstword $(wildcard $(addsuffix /lib64/libnvrtc.so.12,$(CUDA_HOME) /usr/local/cuda /opt/cuda)))
CXX_FILES   = $(foreach name,libstdc++.so.6 libgcc_s.so.1,$(shell cc -print-file-name=$(name)))
CXX_FOLDER  := usr/lib/x86_64-linux-gnu

# Size limits of the parts, in MiB. docs/adr/0021 lists the actual sizes.
WORKER_MIB := 46
LEAN_MIB   := 37
LIB_MIB    := 3
ROOT_MIB   := 49
NVRTC_MIB  := 117

# The binary doesn't depend on the machine, the folder or the time of the build.
IMAGE_BUILD = CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags '-s -w -buildid= $(LDFLAGS)'

.PHONY: image image-tag image-push image-name image-kernels image-worker image-root image-sizes image-test

image: ## Build the container image with Docker (NVRTC=1: the variant that compiles operators)
	docker build $(addprefix -t ,$(sort $(LOCAL_IMAGE) $(IMAGE))) --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) --build-arg TAGS=$(TAGS) \
		--build-arg NVRTC=$(NVRTC) --build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) .

image-tag: ## Tag the built image for a registry (IMAGE_REPOSITORY=registry.example.com/millrace)
	docker tag $(LOCAL_IMAGE) $(IMAGE)

image-push: ## Push the image to that registry (NVRTC=1: the variant, as in image and image-tag)
	docker push $(IMAGE)

image-name: ## Print the image's name
	@echo $(IMAGE)

image-kernels: ## Build the image's kernel library (needs nvcc, no GPU)
	$(MAKE) -C kernels BUILD=$(abspath $(IMAGE_DIR))/kernels LINEINFO= all symbols
	rm -rf $(IMAGE_LIBS)
	install -D -m 644 -t $(IMAGE_LIBS) $(IMAGE_DIR)/kernels/libmillrace.so
ifneq ($(NVRTC),)
	@test -n "$(NVRTC_FILE)" || { echo "NVRTC of CUDA 12 is missing: install the CUDA toolkit, or set CUDA_HOME" >&2; exit 1; }
	install -m 644 -t $(IMAGE_LIBS) $(NVRTC_FILE) $(dir $(NVRTC_FILE))libnvrtc-builtins.so.12.?
endif

image-worker: ## Build the image's worker (TAGS=noembedded: without the NATS server)
	$(IMAGE_BUILD) -tags '$(TAGS)' -o $(IMAGE_DIR)/worker ./cmd/worker

image-root: ## Lay out the image's files under bin/image/root and check their sizes
	@for made in $(IMAGE_DIR)/worker $(IMAGE_LIBS)/libmillrace.so $(if $(NVRTC),$(IMAGE_LIBS)/libnvrtc.so.12); do \
		test -f $$made || { echo "$$made is missing: make image-kernels image-worker" >&2; exit 1; }; done
	rm -rf $(IMAGE_ROOT)
	install -d $(IMAGE_ROOT)/opt/millrace
	install -m 755 $(IMAGE_DIR)/worker $(IMAGE_ROOT)/opt/millrace/
	install -m 644 LICENSE $(IMAGE_ROOT)/opt/millrace/
	install -s -m 644 $(IMAGE_LIBS)/libmillrace.so $(IMAGE_ROOT)/opt/millrace/
ifneq ($(NVRTC),)
	install -m 644 $(IMAGE_LIBS)/libnvrtc* $(IMAGE_ROOT)/opt/millrace/
	install -D -m 644 -t $(IMAGE_ROOT)/$(CXX_FOLDER) $(CXX_FILES)
endif
	tools/image/notices $(IMAGE_DIR)/worker $(if $(NVRTC),nvrtc) >$(IMAGE_ROOT)/opt/millrace/NOTICES
	find $(IMAGE_ROOT) -exec touch -h -d @$(SOURCE_DATE_EPOCH) {} +
	@tools/image/budget $(IMAGE_ROOT)/opt/millrace/worker=$(WORKER_MIB) $(IMAGE_ROOT)/opt/millrace/libmillrace.so=$(LIB_MIB) \
		$(IMAGE_ROOT)=$(if $(NVRTC),$(NVRTC_MIB),$(ROOT_MIB))

image-sizes: ## Build the image's worker with and without the NATS server and print the sizes
	$(IMAGE_BUILD) -o $(IMAGE_DIR)/worker ./cmd/worker
	$(IMAGE_BUILD) -tags noembedded -o $(IMAGE_DIR)/worker-noembedded ./cmd/worker
	@tools/image/budget $(IMAGE_DIR)/worker=$(WORKER_MIB) $(IMAGE_DIR)/worker-noembedded=$(LEAN_MIB)

image-test: ## Run the Dockerfile's steps without Docker and start the worker from the resulting files (needs nvcc and root)
	cd tools/image/test && go test -count=1 ./...
