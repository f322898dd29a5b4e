// Small batches, and the ways to enqueue a small batch on a stream.
#include "small_batch.hpp"

#include <algorithm>
#include <vector>

namespace yardstick {

namespace {

constexpr uint32_t kThreads = 256;

__global__ void add_to_bytes(uint8_t *bytes, uint64_t count, uint32_t add) {
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        bytes[i] = static_cast<uint8_t>(bytes[i] + add);
    }
}

// A launch of kernel `number` for a batch, in the form that calls and graph nodes need. It contains the arguments, so
// it can't be moved.
struct Launch {
    uint8_t *bytes;
    uint64_t count;
    uint32_t add;
    void *arguments[3];
    cudaKernelNodeParams params;

    Launch(const SmallWork &work, const SmallBatch &batch, uint32_t number)
        : bytes(work.slot.device_in.get()), count(batch.bytes), add(batch.add + number),
          arguments{&bytes, &count, &add}, params() {
        params.func = reinterpret_cast<void *>(add_to_bytes);
        params.gridDim = dim3(static_cast<uint32_t>(std::min<uint64_t>((count + kThreads - 1) / kThreads, 64)));
        params.blockDim = dim3(kThreads);
        params.kernelParams = arguments;
    }
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;
};

void call(cudaStream_t stream, const SmallWork &work, const SmallBatch &batch) {
    const Slot &slot = work.slot;
    copy_in(stream, slot.device_in.get(), slot.in.get(), batch.bytes);
    for (uint32_t k = 0; k < work.kernels; k++) {
        Launch launch(work, batch, k);
        check(cudaLaunchKernel(launch.params.func, launch.params.gridDim, launch.params.blockDim, launch.arguments, 0,
                               stream),
              "cudaLaunchKernel add_to_bytes");
    }
    copy_out(stream, slot.out.get(), slot.device_in.get(), batch.bytes);
}

Graph capture(cudaStream_t stream, const SmallWork &work, const SmallBatch &batch) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    call(stream, work, batch);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    return Graph(graph);
}

GraphExec instantiate(const Graph &graph) {
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
    return GraphExec(exec);
}

void launch_graph(const GraphExec &exec, cudaStream_t stream) {
    check(cudaGraphLaunch(exec.get(), stream), "cudaGraphLaunch");
}

class Calls : public Enqueuer {
public:
    explicit Calls(const SmallWork &work) : work_(work) {}
    void enqueue(cudaStream_t stream, const SmallBatch &batch) override { call(stream, work_, batch); }

private:
    SmallWork work_;
};

class Captured : public Enqueuer {
public:
    Captured(const SmallWork &work, const SmallBatch &batch)
        : exec_(instantiate(capture(make_stream().get(), work, batch))) {}
    void enqueue(cudaStream_t stream, const SmallBatch &) override { launch_graph(exec_, stream); }

private:
    GraphExec exec_;
};

class UpdatedNodes : public Enqueuer {
public:
    UpdatedNodes(const SmallWork &work, const SmallBatch &batch) : work_(work), kernels_(work.kernels) {
        const Slot &slot = work.slot;
        cudaGraph_t graph = nullptr;
        check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
        graph_.reset(graph);
        check(cudaGraphAddMemcpyNode1D(&in_, graph, nullptr, 0, slot.device_in.get(), slot.in.get(), batch.bytes,
                                       cudaMemcpyHostToDevice),
              "cudaGraphAddMemcpyNode1D in");
        cudaGraphNode_t before = in_;
        for (uint32_t k = 0; k < work.kernels; k++) {
            Launch launch(work, batch, k);
            check(cudaGraphAddKernelNode(&kernels_[k], graph, &before, 1, &launch.params), "cudaGraphAddKernelNode");
            before = kernels_[k];
        }
        check(cudaGraphAddMemcpyNode1D(&out_, graph, &before, 1, slot.out.get(), slot.device_in.get(), batch.bytes,
                                       cudaMemcpyDeviceToHost),
              "cudaGraphAddMemcpyNode1D out");
        exec_ = instantiate(graph_);
    }

    void enqueue(cudaStream_t stream, const SmallBatch &batch) override {
        const Slot &slot = work_.slot;
        check(cudaGraphExecMemcpyNodeSetParams1D(exec_.get(), in_, slot.device_in.get(), slot.in.get(), batch.bytes,
                                                 cudaMemcpyHostToDevice),
              "cudaGraphExecMemcpyNodeSetParams1D in");
        for (uint32_t k = 0; k < work_.kernels; k++) {
            Launch launch(work_, batch, k);
            check(cudaGraphExecKernelNodeSetParams(exec_.get(), kernels_[k], &launch.params),
                  "cudaGraphExecKernelNodeSetParams");
        }
        check(cudaGraphExecMemcpyNodeSetParams1D(exec_.get(), out_, slot.out.get(), slot.device_in.get(), batch.bytes,
                                                 cudaMemcpyDeviceToHost),
              "cudaGraphExecMemcpyNodeSetParams1D out");
        launch_graph(exec_, stream);
    }

private:
    SmallWork work_;
    Graph graph_; // its nodes identify the nodes of exec_
    cudaGraphNode_t in_ = nullptr, out_ = nullptr;
    std::vector<cudaGraphNode_t> kernels_;
    GraphExec exec_;
};

class Recaptured : public Enqueuer {
public:
    Recaptured(const SmallWork &work, const SmallBatch &batch)
        : work_(work), capturing_(make_stream()), exec_(instantiate(capture(capturing_.get(), work, batch))) {}

    void enqueue(cudaStream_t stream, const SmallBatch &batch) override {
        Graph graph = capture(capturing_.get(), work_, batch);
        cudaGraphExecUpdateResultInfo info = {};
        check(cudaGraphExecUpdate(exec_.get(), graph.get(), &info), "cudaGraphExecUpdate");
        launch_graph(exec_, stream);
    }

private:
    SmallWork work_;
    Stream capturing_;
    GraphExec exec_;
};

} // namespace

std::unique_ptr<Enqueuer> by_calls(const SmallWork &work) { return std::make_unique<Calls>(work); }

std::unique_ptr<Enqueuer> by_graph(const SmallWork &work, const SmallBatch &batch) {
    return std::make_unique<Captured>(work, batch);
}

std::unique_ptr<Enqueuer> by_updated_nodes(const SmallWork &work, const SmallBatch &batch) {
    return std::make_unique<UpdatedNodes>(work, batch);
}

std::unique_ptr<Enqueuer> by_recapture(const SmallWork &work, const SmallBatch &batch) {
    return std::make_unique<Recaptured>(work, batch);
}

} // namespace yardstick
