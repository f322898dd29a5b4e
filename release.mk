# The parts of a release: make release VERSION=0.2.0 makes all of them in bin/release/0.2.0. docs/releasing.md describes how to make a
# release.

# DRY_RUN=1 takes the notes from the changelog's section Unreleased, and permits files that aren't committed.
DRY_RUN ?=
SECTION  = $(if $(DRY_RUN),Unreleased,$(VERSION))
RELEASE  = bin/release/$(VERSION)
PLATFORM = linux-amd64

# The archive of the image: its files and a Dockerfile that adds them to the base. Its names and times depend only on the commit.
ARCHIVE = millrace-image-$(VERSION)$(if $(NVRTC),-nvrtc)-$(PLATFORM).tar
CONTEXT = $(IMAGE_DIR)/context
TAR     = tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(SOURCE_DATE_EPOCH)

# The toolkit that kernels/Makefile also finds. The kernel library contains the toolkit's runtime.
RELEASE_NVCC = $(or $(NVCC),$(firstword $(shell command -v nvcc) $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME) /usr/local/cuda /opt/cuda))))
CUDA_VERSION = $(shell $(RELEASE_NVCC) --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

# Lists the modules in a Go binary, which Go records in the binary.
CYCLONEDX := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

BASE_IMAGE = $(shell sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile | head -n 1)

.PHONY: release release-check release-notes release-dockerfile release-binaries release-image release-chart release-sbom release-sbom-image

release: release-check ## Make image, chart, library, binaries, notes, SBOM and checksums in bin/release/VERSION (VERSION=0.2.0, DRY_RUN=1)
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	$(MAKE) image-kernels image-worker image-root
	$(MAKE) release-binaries release-image
	$(MAKE) image-kernels image-root NVRTC=1
	$(MAKE) release-image NVRTC=1
	$(MAKE) release-chart
	$(MAKE) release-sbom
	$(MAKE) -s release-notes >$(RELEASE)/NOTES.md
	cd $(RELEASE) && sha256sum -- * >../sums && mv ../sums SHA256SUMS
	@cd $(RELEASE) && sha256sum --quiet --check SHA256SUMS && ls -l

# A tag of an image can't have a plus, so a version has no build metadata.
release-check:
	@echo '$(VERSION)' | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z][0-9A-Za-z.-]*)?' || \
		{ echo 'VERSION is "$(VERSION)": set it like 0.2.0 or 0.2.0-rc.1, without a v and without a plus' >&2; exit 1; }
	@next='$(firstword $(subst -, ,$(VERSION)))'; [ "$$(grep -Ec "^(version: |appVersion: \")$$next(-[^\"]*)?\"?$$" helm/millrace/Chart.yaml)" = 2 ] || \
		{ echo "write $$next-dev as version and appVersion into helm/millrace/Chart.yaml first, or set VERSION to the release that it announces" >&2; exit 1; }
	@$(MAKE) -s release-notes | tail -n +2 | grep -q . || \
		{ echo 'CHANGELOG.md has no section "## $(SECTION)" with a text: rename "## Unreleased", or set DRY_RUN=1' >&2; exit 1; }
	@[ -n '$(DRY_RUN)' ] || [ -z "$$(git status --porcelain)" ] || \
		{ git status --porcelain >&2; echo 'these files are not committed: commit them, or set DRY_RUN=1' >&2; exit 1; }

# The changelog's section, whose heading may have a date after the version.
release-notes:
	@printf '# Millrace $(VERSION)\n'
	@awk '/^## /{inside = $$2 == "$(SECTION)"; next} inside' CHANGELOG.md

# The image's worker opens libmillrace.so. The worker without cgo needs no C library and computes on the CPU.
release-binaries:
	install -m 755 $(IMAGE_ROOT)/opt/millrace/worker $(RELEASE)/worker-$(VERSION)-$(PLATFORM)
	install -m 644 $(IMAGE_ROOT)/opt/millrace/libmillrace.so $(IMAGE_ROOT)/opt/millrace/NOTICES LICENSE $(RELEASE)/
	$(subst CGO_ENABLED=1,CGO_ENABLED=0,$(IMAGE_BUILD)) -o $(RELEASE)/worker-$(VERSION)-$(PLATFORM)-static ./cmd/worker
	@! readelf -d $(RELEASE)/worker-$(VERSION)-$(PLATFORM)-static | grep NEEDED

release-image:
	rm -rf $(CONTEXT) && mkdir -p $(CONTEXT) $(RELEASE)
	$(MAKE) -s release-dockerfile >$(CONTEXT)/Dockerfile
	$(TAR) -C $(IMAGE_ROOT) -cf $(CONTEXT)/root.tar .
	$(TAR) -C $(CONTEXT) -cf $(RELEASE)/$(ARCHIVE) Dockerfile root.tar
	gzip -n -f $(RELEASE)/$(ARCHIVE)

# The last stage of the Dockerfile, with its files from the archive instead of an earlier stage.
release-dockerfile:
	@echo '# Build the image with: docker build -t millrace:$(IMAGE_TAG) - < this archive'
	@echo 'ARG BASE_IMAGE=$(BASE_IMAGE)'
	@awk '/^FROM /{stage = ""} {stage = stage $$0 "\n"} END{printf "%s", stage}' Dockerfile | sed \
		-e 's|^COPY --from=worker /src/bin/image/root/ /$$|ADD root.tar /|' -e 's|^ARG VERSION=.*|ARG VERSION=$(VERSION)|' -e 's|^ARG COMMIT=.*|ARG COMMIT=$(COMMIT)|'

release-chart:
	mkdir -p $(RELEASE)
	cd helm/test && go tool helm package ../millrace --version '$(VERSION)' --app-version '$(VERSION)' --destination $(abspath $(RELEASE))

# A list of each worker's modules, and a list of the image's other contents.
release-sbom: release-sbom-image
	for worker in $(RELEASE)/worker-*; do \
		go run $(CYCLONEDX) bin -json -std -noserial -notimestamp -output-version 1.5 -version '$(VERSION)' -output $$worker.cdx.json $$worker || exit; done

release-sbom-image:
	sed -e 's|@VERSION@|$(VERSION)|' -e 's|@CUDA@|$(CUDA_VERSION)|' -e 's|@BASE@|$(BASE_IMAGE)|' tools/release/image.cdx.json >$(RELEASE)/millrace-image-$(VERSION).cdx.json
