// Every request there is.
#include "forms.hpp"

#include "../math/mix.cuh"

namespace yardstick {

namespace {

// Batches are whole words, as mix makes them.
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

// alloc's batch goes through its scratch, so it is no larger than that; by itself it is as large.
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
        {"device", {}, "which GPU it is, and what drives it",
         "name, uuid, driver_version, runtime_version (1000 * major + 10 * minor), multiprocessors, copy_engines"},
        {"copy", {bytes_key(), repeats_key("10")},
         "copy rates: of copies back to back, in and out alone and each while both run; of one by itself; from pageable "
         "memory",
         "in, out, both_in, both_out, one_in, one_out, pageable_in (bytes a second, medians), checked"},
        {"calibrate", {bytes_key()},
         "the most rounds with which the kernel takes no longer than a copy, the mean of in and out, all back to back",
         "rounds, kernel_seconds, copy_seconds, copy_in_seconds, copy_out_seconds, checked"},
        {"kernel", {bytes_key(), rounds_key(), repeats_key("20")},
         "the kernel alone, by events: one by itself, and back to back", "seconds, train_seconds (medians), checked"},
        {"serial", {bytes_key(), rounds_key(), batches_key()}, "one slot, and the host waiting behind each stage",
         "seconds (a batch), checked"},
        {"balanced", {bytes_key(), rounds_key(), slots_key(), batches_key(), wait_key("spin")}, "a stream for each slot",
         "seconds (a batch), checked"},
        {"balanced-three", {bytes_key(), rounds_key(), slots_key(), batches_key(), wait_key("spin")},
         "a stream for each engine, and events between them", "seconds (a batch), checked"},
        {"alloc",
         {word_key("mode", {"prealloc", "sync", "async0", "asynckept"}), scratch_key("least"), scratch_key("most"),
          batch_key(), rounds_key(), slots_key("4"), batches_key(), wait_key("sync")},
         "balanced, with scratch of another size for each batch, least to most bytes",
         "seconds (a batch), alloc_seconds (of them, the host's in allocation calls), bytes (of a batch), checked"},
        {"completion", {word_key("way", {"poll", "sync", "blocking", "hostfunc"}), repeats_key("1000")},
         "from before the launch of an empty kernel to knowing that it is done",
         "median, p99 (seconds), cpu_seconds (of all the process's threads, for one)"},
        {"launch", {number_key("kernels", 1, 64), bytes_key(1ull << 20), repeats_key("1000")},
         "a small batch: copy in, kernels, copy out. By calls, by a graph as it is, with its nodes updated, captured anew",
         "calls, graph, graph_updated, graph_recaptured, in each enqueue_seconds (the host's) and total_seconds, in each "
         "median and p99; checked"},
    });
    return all;
}

std::string help() {
    std::string text =
        "yardstick measures a GPU with schedules written plainly against the CUDA runtime.\n"
        "\n"
        "  yardstick                  read a request a line, answer a JSON object a line, until the input ends\n"
        "  yardstick --once REQUEST   answer one request: yardstick --once 'calibrate bytes=1048576'\n"
        "  yardstick --help           this\n"
        "\n"
        "A request is NAME key=value ...; times are seconds, sizes bytes. A request that fails is answered by\n"
        "{\"error\": \"...\"}. One that cannot be (status 2 with --once) leaves the server as it was; a failure of\n"
        "CUDA or a wrong result ends it with status 1. Batches are random words; the outputs of the first\n"
        "batch and of the last are compared with what the CPU makes of their inputs.\n"
        "\n"
        "wait says how the host waits for a slot: it polls an event (spin), yields its core between polls (yield),\n"
        "leaves it to cudaEventSynchronize (sync), or sleeps there (blocking). alloc's bytes are those of a batch,\n"
        "0 for as many as least. Its mode async0 has a pool whose release threshold is 0: it gives memory back\n"
        "whenever the host synchronizes, as it does with wait=sync and wait=blocking.\n";
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
