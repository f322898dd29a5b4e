# The parts of a release: make release VERSION=0.2.0 makes all of them in bin/release/0.2.0. docs/releasing.md says how to cut one.

# DRY_RUN=1 takes the notes from the changelog's section Unreleased, and permits files that aren't committed.
DRY_RUN ?=
RELEASE  = bin/release/$(VERSION)
PLATFORM = linux-amd64
RELEASER = go run -buildvcs=false ./tools/release

# The archive of the image: its files and a Dockerfile that adds them to the base. Its names and times depend only on the commit.
ARCHIVE = millrace-image-$(VERSION)$(if $(NVRTC),-nvrtc)-$(PLATFORM).tar
CONTEXT = $(IMAGE_DIR)/context
TAR     = tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH)

# The toolkit that kernels/Makefile finds too. Its runtime is in the kernel library.
RELEASE_NVCC = $(or $(NVCC),$(firstword $(shell command -v nvcc) $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME) /usr/local/cuda /opt/cuda))))
CUDA_VERSION = $(shell $(RELEASE_NVCC) --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

.PHONY: release release-check release-notes release-binaries release-image release-chart release-sbom

release: release-check ## Make image, chart, library, binaries, notes, SBOM and checksums in bin/release/VERSION (VERSION=0.2.0, DRY_RUN=1)
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	$(MAKE) image-kernels image-worker image-root
	$(MAKE) release-binaries release-image
	$(MAKE) image-kernels image-root NVRTC=1
	$(MAKE) release-image NVRTC=1
	$(MAKE) release-chart
	$(MAKE) release-sbom
	$(MAKE) release-notes
	cd $(RELEASE) && sha256sum -- * >../sums && mv ../sums SHA256SUMS
	@cd $(RELEASE) && sha256sum --quiet --check SHA256SUMS && ls -l

release-check:
	@$(RELEASER) check '$(VERSION)' '$(DRY_RUN)'

release-notes:
	$(RELEASER) notes '$(VERSION)' '$(DRY_RUN)' >$(RELEASE)/NOTES.md

# The worker of the image, which opens libmillrace.so, and one without cgo, which needs no C library and computes on the CPU.
release-binaries:
	install -m 755 $(IMAGE_ROOT)/opt/millrace/worker $(RELEASE)/worker-$(VERSION)-$(PLATFORM)
	install -m 644 $(IMAGE_ROOT)/opt/millrace/libmillrace.so $(IMAGE_ROOT)/opt/millrace/NOTICES LICENSE $(RELEASE)/
	$(subst CGO_ENABLED=1,CGO_ENABLED=0,$(IMAGE_BUILD)) -o $(RELEASE)/worker-$(VERSION)-$(PLATFORM)-static ./cmd/worker
	@! readelf -d $(RELEASE)/worker-$(VERSION)-$(PLATFORM)-static | grep NEEDED

release-image:
	rm -rf $(CONTEXT) && mkdir -p $(CONTEXT) $(RELEASE)
	$(RELEASER) dockerfile '$(VERSION)' '$(COMMIT)' '$(IMAGE_TAG)' >$(CONTEXT)/Dockerfile
	$(TAR) -C $(IMAGE_ROOT) -cf $(CONTEXT)/root.tar .
	$(TAR) -C $(CONTEXT) -cf $(RELEASE)/$(ARCHIVE) Dockerfile root.tar
	gzip -n -f $(RELEASE)/$(ARCHIVE)

release-chart:
	mkdir -p $(RELEASE)
	cd helm/test && go tool helm package ../millrace --version '$(VERSION)' --app-version '$(VERSION)' --destination $(abspath $(RELEASE))

release-sbom:
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(RELEASER) sbom '$(VERSION)' $(RELEASE) '$(CUDA_VERSION)' >$(RELEASE).cdx.json
	mv $(RELEASE).cdx.json $(RELEASE)/millrace-$(VERSION).cdx.json
