// completion: the time and the CPU cost until the host detects that an empty kernel has finished.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <vector>

#include "answers.hpp"
#include "clock.hpp"
#include "quantile.hpp"
#include "wait.hpp"

namespace yardstick {

namespace {

__global__ void empty_kernel() {}

void launch_empty(cudaStream_t stream) {
    check(cudaLaunchKernel(reinterpret_cast<const void *>(empty_kernel), dim3(1), dim3(1), nullptr, 0, stream),
          "cudaLaunchKernel empty_kernel");
}

// An eventfd. A host function writes to it, and a thread waits for it.
class Bell {
public:
    Bell() : fd_(eventfd(0, EFD_CLOEXEC)) {
        if (fd_ < 0) throw Failure("eventfd: no file descriptor is left: raise the limit (ulimit -n)");
    }
    ~Bell() { (void)close(fd_); }
    Bell(const Bell &) = delete;
    Bell &operator=(const Bell &) = delete;

    // The callback for cudaLaunchHostFunc. The write can't block, because the counter is read after each write.
    static void ring(void *self) {
        uint64_t one = 1;
        ssize_t written = write(static_cast<Bell *>(self)->fd_, &one, sizeof one);
        (void)written; // if the write fails, the wait below times out and reports the timeout
    }

    // Blocks until ring is called. A failed stream never calls its host functions, so the wait has a timeout.
    void wait() {
        pollfd entry = {fd_, POLLIN, 0};
        uint64_t count = 0;
        if (::poll(&entry, 1, 10000) != 1 || read(fd_, &count, sizeof count) != sizeof count) {
            throw Failure("the host function was not called within 10 seconds");
        }
    }

private:
    int fd_;
};

// Launches a kernel and waits until the host has detected its completion.
using Round = std::function<void(cudaStream_t)>;

Round by_event(Wait wait) {
    std::shared_ptr<CUevent_st> event(make_wait_event(wait));
    return [event, wait](cudaStream_t stream) {
        launch_empty(stream);
        record(event.get(), stream);
        wait_for(event.get(), wait);
    };
}

Round by_host_function() {
    auto bell = std::make_shared<Bell>();
    return [bell](cudaStream_t stream) {
        launch_empty(stream);
        check(cudaLaunchHostFunc(stream, Bell::ring, bell.get()), "cudaLaunchHostFunc");
        bell->wait();
    };
}

Round round_of(Way way) {
    switch (way) {
    case Way::poll:
        return by_event(Wait::spin);
    case Way::sync:
        return by_event(Wait::sync);
    case Way::blocking:
        return by_event(Wait::blocking);
    case Way::hostfunc:
        return by_host_function();
    }
    throw Failure("no such way of completion");
}

} // namespace

Json answer_completion(const Request &request, Session &) {
    uint64_t repeats = request["repeats"];
    Round round = round_of(static_cast<Way>(request["way"]));
    Stream stream = make_stream();
    for (int i = 0; i < 100; i++) round(stream.get());
    std::vector<double> samples;
    samples.reserve(repeats);
    double cpu = cpu_seconds();
    for (uint64_t i = 0; i < repeats; i++) {
        double start = now();
        round(stream.get());
        samples.push_back(now() - start);
    }
    cpu = cpu_seconds() - cpu;
    Json answer;
    answer.number("median", median(samples)).number("p99", quantile(samples, 0.99));
    return answer.number("cpu_seconds", cpu / static_cast<double>(repeats));
}

} // namespace yardstick
