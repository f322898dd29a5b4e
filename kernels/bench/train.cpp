// Times work with the GPU's clock.
#include "train.hpp"

#include <algorithm>

#include "quantile.hpp"

namespace yardstick {

uint32_t train_of(uint64_t bytes) {
    return static_cast<uint32_t>(std::clamp<uint64_t>((32ull << 20) / bytes, 8, 512));
}

std::vector<double> time_trains(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work) {
    Event begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
    std::vector<double> samples;
    for (uint64_t i = 0; i <= repeats; i++) {
        record(begin.get(), stream);
        for (uint32_t w = 0; w < train; w++) work(stream);
        record(end.get(), stream);
        synchronize(stream);
        if (i > 0) samples.push_back(seconds_between(begin.get(), end.get()) / train); // the first train is the warm-up
    }
    return samples;
}

double seconds_each(cudaStream_t stream, uint32_t train, uint64_t repeats, const Work &work) {
    return median(time_trains(stream, train, repeats, work));
}

} // namespace yardstick
