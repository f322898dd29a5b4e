# The worker's image: its binary and the kernel library on a base with the C library and without a shell. Neither
# building nor running it needs a GPU. On a machine with a GPU, the container toolkit adds the driver. docs/adr/0021 has
# the reasons.
#
#   docker build -t millrace .                               or make image, which stamps version and commit
#   docker build -t millrace --build-arg TAGS=noembedded .   without the embedded NATS server
#   docker build -t millrace --build-arg NVRTC=1 .           with NVRTC, which compiles the sources of operators
#   docker run --rm --gpus all millrace demo
#
# Each RUN is a target of image.mk. `make image-test` does the same without Docker.

# These arguments pin all versions, with tags for people and digests for Docker.
ARG CUDA_IMAGE=nvidia/cuda:12.4.1-devel-ubuntu22.04@sha256:da6791294b0b04d7e65d87b7451d6f2390b4d36225ab0701ee7dfec5769829f5
ARG GO_IMAGE=golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
ARG BASE_IMAGE=gcr.io/distroless/base-nossl-debian12:nonroot@sha256:be40c00dfabd86576d92666e87e406714d5618342de1a0c213ad232de255172e

# libmillrace.so: needs nvcc and no Go.
FROM ${CUDA_IMAGE} AS kernels
WORKDIR /src
COPY Makefile image.mk ./
COPY kernels kernels
RUN make image-kernels

# With NVRTC=1, this adds NVRTC from the toolkit. It compiles nothing again.
FROM kernels AS libraries
ARG NVRTC=
RUN make image-kernels

# The worker: needs Go and a C compiler, and no CUDA.
FROM ${GO_IMAGE} AS worker
WORKDIR /src
COPY Makefile image.mk go.mod go.sum LICENSE ./
COPY tools/image/notices tools/image/budget tools/image/
COPY client client
COPY cmd cmd
COPY internal internal
COPY kernels/include kernels/include
ARG VERSION=dev
ARG COMMIT=unknown
ARG TAGS=
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build make image-worker
COPY --from=libraries /src/bin/image/lib/ bin/image/lib/
ARG NVRTC=
RUN --mount=type=cache,target=/go/pkg/mod make image-root

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Millrace" \
      org.opencontainers.image.description="A worker that feeds a GPU from NATS JetStream" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
COPY --from=worker /src/bin/image/root/ /
# The image must not select GPUs, because the user of the container selects them. With NVIDIA_VISIBLE_DEVICES=all here,
# a pod that requests no GPU would get every GPU of its node.
ENV PATH=/opt/millrace:/usr/local/bin:/usr/bin:/bin \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /home/nonroot
EXPOSE 9464
ENTRYPOINT ["/opt/millrace/worker"]
