// Measures ways in which one thread per record can read its record: byte by byte, or through the window of
// window.cuh. It also compares memories for an array that is indexed by data.
//
//   make -C kernels records && kernels/build/records
//
// It prints GB/s of records, the median of 21 launches over a batch of 64 MiB. It compares every result with the CPU's
// result.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include <millrace/window.cuh>

#include "cuda.hpp"

namespace {

using yardstick::check;

constexpr uint32_t kBatch = 64 << 20, kRuns = 21, kThreads = 64;
constexpr uint32_t kBins = 64; // as in the example entropy, which uses 16 bins by default

struct Batch {
    const uint8_t *data;
    const uint32_t *offsets;
    uint32_t rows, bytes;
    uint32_t *results;
};

// ---- ways to read ----

struct Bytes {
    static constexpr const char *kName = "bytes";
    const uint8_t *data;
    __device__ Bytes(const uint8_t *from, uint32_t, uint64_t, uint64_t) : data(from) {}
    __device__ uint8_t operator[](uint32_t i) { return __ldg(data + i); }
};

struct Windowed {
    static constexpr const char *kName = "window";
    const uint8_t *data;
    millrace::Window window;
    __device__ Windowed(const uint8_t *from, uint32_t size, uint64_t begin, uint64_t end)
        : data(from), window(from, size, begin, end) {}
    __device__ uint8_t operator[](uint32_t i) { return window.at(i) ? window.byte(i) : __ldg(data + i); }
};

// ---- work ----

// The number of bytes in the fullest bin, with the bins in the thread's own memory.
struct LocalBins {
    static constexpr const char *kName = "bins, local memory";
    template <class Reader>
    static __device__ uint32_t of(Reader &record, uint32_t size) {
        uint32_t count[kBins] = {}, most = 0;
        for (uint32_t i = 0; i < size; i++) count[record[i] >> 4]++;
        for (uint32_t c : count) most = max(most, c);
        return most;
    }
};

// LocalBins with the bins in shared memory. Bins of neighboring threads are in neighboring banks.
struct SharedBins {
    static constexpr const char *kName = "bins, shared memory";
    template <class Reader>
    static __device__ uint32_t of(Reader &record, uint32_t size) {
        __shared__ uint32_t all[kBins * kThreads];
        uint32_t *count = all + threadIdx.x, most = 0;
        for (uint32_t b = 0; b < kBins; b++) count[b * kThreads] = 0;
        for (uint32_t i = 0; i < size; i++) count[(record[i] >> 4) * kThreads]++;
        for (uint32_t b = 0; b < kBins; b++) most = max(most, count[b * kThreads]);
        return most;
    }
};

// FNV-1a, which needs only registers.
struct Fnv {
    static constexpr const char *kName = "FNV-1a";
    template <class Reader>
    static __device__ uint32_t of(Reader &record, uint32_t size) {
        uint32_t hash = 2166136261u;
        for (uint32_t i = 0; i < size; i++) hash = (hash ^ record[i]) * 16777619u;
        return hash;
    }
};

uint32_t fullest_bin(const uint8_t *record, uint32_t size) {
    uint32_t count[kBins] = {};
    for (uint32_t i = 0; i < size; i++) count[record[i] >> 4]++;
    return *std::max_element(count, count + kBins);
}

uint32_t fnv(const uint8_t *record, uint32_t size) {
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < size; i++) hash = (hash ^ record[i]) * 16777619u;
    return hash;
}

template <class Work, class Reader>
__global__ void __launch_bounds__(kThreads) run(const __grid_constant__ Batch batch) {
    uint32_t row = blockIdx.x * kThreads + threadIdx.x;
    if (row >= batch.rows) return;
    uint32_t start = batch.offsets[row], size = batch.offsets[row + 1] - start;
    uint64_t begin = reinterpret_cast<uint64_t>(batch.data);
    Reader record(batch.data + start, size, begin, begin + batch.bytes);
    batch.results[row] = Work::of(record, size);
}

// ---- measuring ----

struct Input {
    std::string name;
    std::vector<uint32_t> offsets;
    std::vector<uint32_t> bins, hashes; // expected results
};

// Returns records that fill the batch. Each record has `size` bytes. If `varied` is set, each record has between half and one and
// a half times `size`.
Input input_of(uint32_t size, bool varied, const std::vector<uint8_t> &data) {
    Input input;
    input.name = std::to_string(size) + (varied ? " B, varied" : " B");
    input.offsets = {0};
    uint32_t state = 1;
    while (true) {
        state = state * 1664525u + 1013904223u;
        uint64_t end = input.offsets.back() + (varied ? size / 2 + (state >> 8) % size : size);
        if (end > kBatch) break;
        input.offsets.push_back(static_cast<uint32_t>(end));
    }
    for (size_t r = 0; r + 1 < input.offsets.size(); r++) {
        const uint8_t *record = data.data() + input.offsets[r];
        input.bins.push_back(fullest_bin(record, input.offsets[r + 1] - input.offsets[r]));
        input.hashes.push_back(fnv(record, input.offsets[r + 1] - input.offsets[r]));
    }
    return input;
}

// Returns words of random letters, in which a few bins get most bytes, as in text.
std::vector<uint8_t> make_text() {
    std::vector<uint8_t> data(kBatch);
    uint32_t state = 7;
    for (uint8_t &byte : data) {
        state = state * 1664525u + 1013904223u;
        uint32_t v = state >> 16;
        byte = static_cast<uint8_t>(v % 6 == 0 ? ' ' : v % 31 == 0 ? 0x80 | v >> 9 : 'a' + (v >> 6) % 26);
    }
    return data;
}

class Bench {
public:
    Bench() : data_(make_text()), memory_(yardstick::make_device_memory(kBatch)), stream_(yardstick::make_stream()) {}

    void measure(uint32_t size, bool varied) {
        Input input = input_of(size, varied, data_);
        uint32_t rows = static_cast<uint32_t>(input.offsets.size() - 1);
        offsets_ = yardstick::make_device_memory(4ull * (rows + 1)), results_ = yardstick::make_device_memory(4ull * rows);
        // The batch ends at the end of its memory, so it begins at an odd address if its size is odd.
        uint8_t *start = memory_.get() + kBatch - input.offsets.back();
        check(cudaMemcpy(start, data_.data(), input.offsets.back(), cudaMemcpyHostToDevice), "cudaMemcpy");
        check(cudaMemcpy(offsets_.get(), input.offsets.data(), 4ull * (rows + 1), cudaMemcpyHostToDevice), "cudaMemcpy");
        batch_ = {start, reinterpret_cast<uint32_t *>(offsets_.get()), rows, input.offsets.back(), reinterpret_cast<uint32_t *>(results_.get())};
        one<LocalBins, Bytes>(input, input.bins), one<LocalBins, Windowed>(input, input.bins);
        one<SharedBins, Bytes>(input, input.bins), one<SharedBins, Windowed>(input, input.bins);
        one<Fnv, Bytes>(input, input.hashes), one<Fnv, Windowed>(input, input.hashes);
    }

private:
    template <class Work, class Reader>
    void one(const Input &input, const std::vector<uint32_t> &want) {
        check(cudaMemset(results_.get(), 0xff, 4ull * batch_.rows), "cudaMemset");
        std::vector<double> seconds;
        yardstick::Event from = yardstick::make_event(0), to = yardstick::make_event(0);
        for (uint32_t i = 0; i < kRuns; i++) {
            yardstick::record(from.get(), stream_.get());
            run<Work, Reader><<<(batch_.rows + kThreads - 1) / kThreads, kThreads, 0, stream_.get()>>>(batch_);
            check(cudaGetLastError(), "launch");
            yardstick::record(to.get(), stream_.get());
            yardstick::synchronize(stream_.get());
            seconds.push_back(yardstick::seconds_between(from.get(), to.get()));
        }
        std::vector<uint32_t> got(batch_.rows);
        check(cudaMemcpy(got.data(), results_.get(), 4ull * batch_.rows, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (uint32_t r = 0; r < batch_.rows; r++) {
            if (got[r] == want[r]) continue;
            throw yardstick::Failure(std::string(Work::kName) + ", " + Reader::kName + ", " + input.name + ": record " +
                                     std::to_string(r) + " is " + std::to_string(got[r]) + ", want " + std::to_string(want[r]));
        }
        std::sort(seconds.begin(), seconds.end());
        printf("%-16s  %-20s  %-8s  %8.1f\n", input.name.c_str(), Work::kName, Reader::kName,
               batch_.bytes / seconds[kRuns / 2] * 1e-9);
    }

    std::vector<uint8_t> data_;
    yardstick::DeviceMemory memory_, offsets_, results_;
    yardstick::Stream stream_;
    Batch batch_{};
};

} // namespace

int main() {
    try {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
        int driver = 0;
        check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
        printf("%s, driver for CUDA %d.%d\n", properties.name, driver / 1000, driver % 1000 / 10);
        printf("%-16s  %-20s  %-8s  %8s\n", "records", "work", "reading", "GB/s");
        Bench bench;
        for (uint32_t size : {64u, 256u, 2u << 10, 64u << 10}) {
            for (bool varied : {false, true}) bench.measure(size, varied);
        }
    } catch (const std::exception &e) {
        fprintf(stderr, "records: %s\n", e.what());
        return 1;
    }
    return 0;
}
