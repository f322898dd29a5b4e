// Resident kernels on the host: batches through a mailbox, one after the other.
#include <string.h>

#include <algorithm>
#include <functional>

#include "cuda_on_host.hpp"
#include "hopper_on_host.hpp"

#include "../crc32c_resident.cuh"
#include "../minhash_resident.cuh"
#include "check.hpp"

using namespace millrace;

using Launch = std::function<void(const millrace_resident &)>;

// The host's side: posts the batches in order while the kernel runs, then tells it to end, or forgets it for long.
struct Host {
    std::vector<Rows> batches;
    uint32_t record_words;
    bool forgets;
    MailboxWords words;
    std::vector<uint4> bytes; // whole vectors, as a mailbox may read them
    std::vector<uint32_t> offsets, result;
    std::vector<std::vector<uint32_t>> results;

    void post(const Rows &rows) {
        Batch batch(rows, 15);
        bytes.assign((batch.length + 15) / 16, uint4{});
        if (batch.length != 0) memcpy(bytes.data(), batch.bytes, batch.length);
        offsets = batch.offsets;
        result.assign(rows.size() * record_words, 0xdeadbeefu);
        words.rows = batch.rows, words.bytes = batch.length;
        words.batch = reinterpret_cast<uint64_t>(bytes.data());
        words.offsets = reinterpret_cast<uint64_t>(offsets.data());
        words.result = reinterpret_cast<uint64_t>(result.data());
        words.posted++;
    }

    void turn() {
        if (words.finished != words.posted) return;
        if (words.posted > results.size()) results.push_back(result);
        if (words.posted < batches.size()) {
            post(batches[words.posted]);
        } else if (forgets) {
            emulator::clock += kMailboxIdle / 100; // time flies
        } else {
            words.posted = kMailboxStop;
        }
    }
};

// Runs a kernel until it ends, which it must do once it has been told to, or has been idle for long.
static void run(Host *host, uint32_t scratch_words, const Launch &launch) {
    uint32_t rows = 0, bytes = 0;
    for (const Rows &batch : host->batches) {
        uint32_t length = 0;
        for (const std::string &row : batch) length += static_cast<uint32_t>(row.size());
        rows = std::max(rows, static_cast<uint32_t>(batch.size())), bytes = std::max(bytes, length);
    }
    // Noise, and no more of it than the kernel may use.
    std::vector<uint4> batch((bytes + 15) / 16 + 1, uint4{1, 2, 3, 4});
    std::vector<uint32_t> offsets(rows + 1, 5), scratch(scratch_words, 6), result(rows * host->record_words, 7);
    millrace_resident room = {};
    room.mailbox = reinterpret_cast<uint64_t>(&host->words);
    room.run = host->words.left + 1;
    room.batch = reinterpret_cast<uint64_t>(batch.data()), room.offsets = reinterpret_cast<uint64_t>(offsets.data());
    room.scratch = reinterpret_cast<uint64_t>(scratch.data()), room.result = reinterpret_cast<uint64_t>(result.data());
    emulator::host_turn = [=] { host->turn(); };
    launch(room);
    CHECK_EQUAL(host->words.left, room.run, "the run that has ended");
    CHECK_EQUAL(host->results.size(), host->batches.size(), "batches that came back");
}

static void run_crc32c(Host *host) {
    static Crc32cTables tables;
    crc32c_make_tables(&tables);
    run(host, 16, [](const millrace_resident &room) { emulator::launch(1, kCrc32cThreads, crc32c_resident, &tables, room); });
    for (size_t b = 0; b < host->batches.size(); b++) {
        for (size_t r = 0; r < host->batches[b].size(); r++) {
            CHECK_EQUAL(host->results[b][r], slow_crc32c(host->batches[b][r]), "crc32c of batch %zu, row %zu", b, r);
        }
    }
}

static void run_minhash(Host *host, uint32_t k, uint32_t hashes) {
    uint64_t state = 1;
    std::vector<PermutationWords> permutations;
    for (uint32_t i = 0; i < hashes; i++) permutations.push_back(permutation_words(next_permutation(&state)));
    run(host, 40, [&](const millrace_resident &room) {
        emulator::launch(1, kMinhashThreads, minhash_resident, k, halo_bytes(k),
                         static_cast<const PermutationWords *>(permutations.data()), hashes, room);
    });
    for (size_t b = 0; b < host->batches.size(); b++) {
        for (size_t r = 0; r < host->batches[b].size(); r++) {
            std::vector<uint32_t> want = slow_minhash(host->batches[b][r], k, hashes, 1);
            for (uint32_t i = 0; i < hashes; i++) {
                CHECK_EQUAL(host->results[b][r * hashes + i], want[i], "minhash of batch %zu, row %zu, value %u", b, r, i);
            }
        }
    }
}

static std::string letters(Random &random, uint32_t bytes) {
    std::string s(bytes, 0);
    for (char &c : s) c = static_cast<char>('a' + random.below(26));
    return s;
}

// Batches of every kind in turn, so that each finds what another has left behind.
static std::vector<Rows> mixed_batches(Random &random) {
    std::vector<Rows> all = {{}, {"x"}, {""}, Rows(1000), {letters(random, 1024)}, {letters(random, 20000), "", "end"}};
    for (int b = 0; b < 12; b++) {
        Rows rows;
        for (uint32_t r = random.below(40); r > 0; r--) rows.push_back(letters(random, random.below(random.below(4) ? 60 : 5000)));
        all.push_back(rows);
    }
    all.push_back({"the last"});
    return all;
}

void check_mailbox() {
    Random random(6);
    std::vector<Rows> batches = mixed_batches(random);
    std::vector<Rows> few(batches.begin(), batches.begin() + 5); // the reference is slow at many hashes
    Host crc = {batches, 1, false, {}, {}, {}, {}, {}}, narrow = {batches, 3, false, {}, {}, {}, {}, {}};
    Host wide = {few, 300, false, {}, {}, {}, {}, {}};
    run_crc32c(&crc);
    run_minhash(&wide, 5, 300);
    run_minhash(&narrow, 24, 3);

    // Forgotten, it ends by itself; started again, it goes on with the next batch.
    Host forgetful = {batches, 1, true, {}, {}, {}, {}, {}};
    uint64_t began = emulator::clock;
    run_crc32c(&forgetful);
    CHECK_EQUAL(emulator::clock - began > kMailboxIdle, true, "time until it ended by itself");
    CHECK_EQUAL(forgetful.words.posted, batches.size(), "batches posted");
    forgetful.result[0] = 42;
    run_crc32c(&forgetful);
    CHECK_EQUAL(forgetful.result[0], 42u, "a result that was finished in the run before");
    forgetful.batches.push_back({"one more"});
    forgetful.turn();
    run_crc32c(&forgetful);
    CHECK_EQUAL(forgetful.words.left, 3u, "runs");
}
