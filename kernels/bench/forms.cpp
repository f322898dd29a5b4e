// The table of requests.
#include "forms.hpp"

#include "../math/mix.cuh"

namespace yardstick {

namespace {

// The key for the batch size. Batches consist of whole words, because mix works on words.
Key bytes_key(uint64_t most = 256ull << 20) {
    Key key = number_key("bytes", 4, most);
    key.step = 4;
    return key;
}

Key rounds_key() { return number_key("rounds", 0, millrace::kMostMixRounds); }
Key slots_key(std::string fallback = "") { return number_key("slots", 1, 16, std::move(fallback)); }
Key batches_key() { return number_key("batches", 1, 1000000); }
Key repeats_key(std::string fallback) { return number_key("repeats", 1, 100000, std::move(fallback)); }
Key wait_key(std::string fallback) { return word_key("wait", {"spin", "yield", "sync", "blocking"}, std::move(fallback)); }
Key scratch_key(std::string name) { return number_key(std::move(name), 4, 1ull << 30); }

// The key for alloc's batch size. The batch passes through the scratch, so the batch is at most as large as the smallest scratch.
// That size is the default.
Key batch_key() {
    Key key = bytes_key();
    key.least = 0;
    key.fallback = "0";
    return key;
}

std::vector<Form> with_device(std::vector<Form> forms) {
    for (Form &form : forms) form.keys.push_back(number_key("device", 0, 63, "0"));
    return forms;
}

} // namespace

const std::vector<Form> &forms() {
    static const std::vector<Form> all = with_device({
        {"device", {}, "the GPU, its driver and its runtime",
         "name, uuid, driver_version, runtime_version (1000 * major + 10 * minor), multiprocessors, copy_engines"},
        {"copy", {bytes_key(), repeats_key("10")},
         "copy rates: of copies back to back, in and out alone and each while both run; of a single copy; from pageable "
         "memory",
         "in, out, both_in, both_out, one_in, one_out, pageable_in (bytes per second, medians), checked"},
        {"calibrate", {bytes_key()},
         "the largest number of rounds with which the kernel takes no longer than a copy (mean of in and out, back to back)",
         "rounds, kernel_seconds, copy_seconds, copy_in_seconds, copy_out_seconds, checked"},
        {"kernel", {bytes_key(), rounds_key(), repeats_key("20")},
         "the kernel alone, timed with events: a single launch, and launches back to back", "seconds, train_seconds (medians), checked"},
        {"serial", {bytes_key(), rounds_key(), batches_key()}, "one slot, and a host that waits after each stage",
         "seconds (per batch), checked"},
        {"balanced", {bytes_key(), rounds_key(), slots_key(), batches_key(), wait_key("spin")}, "one stream per slot",
         "seconds (per batch), checked"},
        {"balanced-three", {bytes_key(), rounds_key(), slots_key(), batches_key(), wait_key("spin")},
         "one stream per engine, with events between them", "seconds (per batch), checked"},
        {"alloc",
         {word_key("mode", {"prealloc", "sync", "async0", "asynckept"}), scratch_key("least"), scratch_key("most"),
          batch_key(), rounds_key(), slots_key("4"), batches_key(), wait_key("sync")},
         "balanced, with a different scratch size for each batch, from least to most bytes",
         "seconds (per batch), alloc_seconds (the host's share in allocation calls), bytes (per batch), checked"},
        {"completion", {word_key("way", {"poll", "sync", "blocking", "hostfunc"}), repeats_key("1000")},
         "the time from before the launch of an empty kernel until the host knows that it has finished",
         "median, p99 (seconds), cpu_seconds (of all threads of the process, per launch)"},
        {"launch", {number_key("kernels", 1, 64), bytes_key(1ull << 20), repeats_key("1000")},
         "a small batch: copy in, kernels, copy out. By calls, by an unchanged graph, with updated nodes, captured again",
         "calls, graph, graph_updated, graph_recaptured, each with enqueue_seconds (host time) and total_seconds, each "
         "with median and p99; checked"},
    });
    return all;
}

std::string help() {
    std::string text =
        "yardstick measures a GPU with schedules written directly against the CUDA runtime.\n"
        "\n"
        "  yardstick                  read one request per line and answer with one JSON object per line\n"
        "  yardstick --once REQUEST   answer one request: yardstick --once 'calibrate bytes=1048576'\n"
        "  yardstick --help           this\n"
        "\n"
        "A request is NAME key=value ...; times are seconds, sizes bytes. The answer to a failed request is\n"
        "{\"error\": \"...\"}. After an invalid request (status 2 with --once) the server continues; after a failure\n"
        "of CUDA or a wrong result it ends with status 1. Batches are random words; the outputs of the first and\n"
        "the last batch are compared with the CPU's results.\n"
        "\n"
        "wait says how the host waits for a slot: it polls an event (spin), yields its core between polls (yield),\n"
        "calls cudaEventSynchronize (sync), or sleeps in that call (blocking). alloc's bytes is the size of a batch;\n"
        "0 means least. Its mode async0 uses a pool with release threshold 0, which returns memory whenever the\n"
        "host synchronizes, as it does with wait=sync and wait=blocking.\n";
    for (const Form &form : forms()) {
        text += "\n" + form.name + ": " + form.about + "\n";
        for (const Key &key : form.keys) {
            text += "  " + key.name + "=" + allowed(key);
            text += key.fallback.empty() ? "\n" : " (default " + key.fallback + ")\n";
        }
        text += "  answers " + form.members + "\n";
    }
    return text;
}

} // namespace yardstick
