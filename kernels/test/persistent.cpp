// Tests persistent kernels on the host: payloads pass through a mailbox, one at a time.
#include <string.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>

#include "cuda_on_host.hpp"
#include "hopper_on_host.hpp"

#include "../crc32c_persistent.cuh"
#include "../minhash_persistent.cuh"
#include "check.hpp"

using namespace millrace;

using Launch = std::function<void(const PersistentMemory &)>;

// Memory that is aligned like pinned memory and ends after the last requested byte, so that the sanitizer detects a
// read past it.
struct FreeAligned {
    void operator()(void *memory) const { ::operator delete(memory, std::align_val_t(alignof(MailboxWords))); }
};
using Aligned = std::unique_ptr<void, FreeAligned>;

static Aligned zeroed(size_t bytes) {
    Aligned memory(::operator new(bytes, std::align_val_t(alignof(MailboxWords))));
    memset(memory.get(), 0, bytes);
    return memory;
}

// The host's side. It posts the payloads in order while the kernel runs. Then it either stops the kernel or leaves
// it idle.
struct Host {
    std::vector<std::string> payloads;
    uint32_t record_words;
    bool forgets;
    Aligned mailbox = nullptr; // MailboxWords, and space for the largest payload in whole vectors
    std::vector<uint32_t> record = {};
    std::vector<std::vector<uint32_t>> records = {};

    size_t largest() const {
        size_t bytes = 0;
        for (const std::string &payload : payloads) bytes = std::max(bytes, payload.size());
        return bytes;
    }

    MailboxWords &words() {
        if (!mailbox) mailbox = zeroed(sizeof(MailboxWords) + (largest() + kMailboxAlign - 1) / kMailboxAlign * kMailboxAlign);
        return *static_cast<MailboxWords *>(mailbox.get());
    }

    void post(const std::string &payload) {
        memcpy(&words() + 1, payload.data(), payload.size());
        record.assign(record_words, 0xdeadbeefu);
        words().bytes = static_cast<uint32_t>(payload.size());
        words().posted++;
    }

    void turn() {
        if (words().finished != words().posted) return;
        if (words().posted > records.size()) records.push_back(record);
        if (words().posted < payloads.size()) {
            post(payloads[words().posted]);
        } else if (forgets) {
            emulator::clock += kMailboxIdle / 100; // advances the clock
        } else {
            words().posted = kMailboxStop;
        }
    }
};

// Runs a kernel until it ends. It must end after it has been stopped or has been idle for the limit.
static void run(Host *host, uint32_t scratch_words, const Launch &launch) {
    // This memory is noise, of exactly the size that the kernel may use.
    std::vector<uint4> payload((host->largest() + 15) / kMailboxAlign, uint4{1, 2, 3, 4});
    std::vector<uint32_t> offsets(2, 5), scratch(scratch_words, 6), result(host->record_words, 7);
    host->record.resize(host->record_words);
    PersistentMemory memory = {&host->words(), host->record.data(), reinterpret_cast<uint8_t *>(payload.data()),
                               offsets.data(), scratch.data(), result.data()};
    emulator::host_turn = [=] { host->turn(); };
    launch(memory);
    CHECK_EQUAL(host->records.size(), host->payloads.size(), "payloads that came back");
}

static void run_crc32c(Host *host) {
    static Crc32cTables tables;
    crc32c_make_tables(&tables);
    run(host, 16, [](const PersistentMemory &memory) {
        emulator::launch(1, kCrc32cThreads, crc32c_persistent, &tables, memory);
    });
    for (size_t i = 0; i < host->payloads.size(); i++) {
        CHECK_EQUAL(host->records[i][0], slow_crc32c(host->payloads[i]), "crc32c of payload %zu", i);
    }
}

static void run_minhash(Host *host, uint32_t k, uint32_t hashes) {
    Permutations generator(1);
    std::vector<Permutation> permutations;
    for (uint32_t i = 0; i < hashes; i++) permutations.push_back(generator.next());
    run(host, 40, [&](const PersistentMemory &memory) {
        emulator::launch(1, kMinhashThreads, minhash_persistent, k, halo_bytes(k),
                         static_cast<const Permutation *>(permutations.data()), hashes, memory);
    });
    for (size_t p = 0; p < host->payloads.size(); p++) {
        std::vector<uint32_t> want = slow_minhash(host->payloads[p], k, hashes, 1);
        for (uint32_t i = 0; i < hashes; i++) {
            CHECK_EQUAL(host->records[p][i], want[i], "minhash of payload %zu, value %u", p, i);
        }
    }
}

static std::string letters(Random &random, uint32_t bytes) {
    std::string s(bytes, 0);
    for (char &c : s) c = static_cast<char>('a' + random.below(26));
    return s;
}

// Returns payloads of every kind in rotation, so that memory contains remains of a different kind before each payload.
static std::vector<std::string> mixed_payloads(Random &random) {
    std::vector<std::string> all = {"", "x", "", letters(random, 1024), letters(random, 20000), "end"};
    for (uint32_t bytes = 7; bytes < 80; bytes += 8) all.push_back(letters(random, bytes));
    for (int i = 0; i < 40; i++) all.push_back(letters(random, random.below(random.below(4) ? 60 : 5000)));
    all.push_back("the last");
    return all;
}

void check_persistent() {
    Random random(6);
    std::vector<std::string> payloads = mixed_payloads(random);
    std::vector<std::string> few(payloads.begin(), payloads.begin() + 4); // the reference is slow with many hashes
    Host crc = {payloads, 1, false}, narrow = {payloads, 3, false}, wide = {few, 300, false};
    run_crc32c(&crc);
    run_minhash(&wide, 5, 300);
    run_minhash(&narrow, 24, 3);

    // This host leaves the kernel idle, so the kernel ends. After a new launch, the kernel continues with the next payload.
    Host forgetful = {payloads, 1, true};
    uint64_t began = emulator::clock;
    run_crc32c(&forgetful);
    CHECK_EQUAL(emulator::clock - began > kMailboxIdle, true, "time until it ended by itself");
    CHECK_EQUAL(forgetful.words().posted, payloads.size(), "payloads posted");
    forgetful.record[0] = 42;
    run_crc32c(&forgetful);
    CHECK_EQUAL(forgetful.record[0], 42u, "a record that was finished in the launch before");
    forgetful.payloads.push_back("one more");
    forgetful.turn();
    run_crc32c(&forgetful);
}
