// Measures the kernels of the operator quality alone, for texts of several kinds, and compares every result with a slow
// reference on the CPU.
//
//   make -C kernels quality-bench && kernels/build/quality-bench [SUBSTRING [MIB]]
//
// It prints the median of 21 launches over a batch of about 16 MiB, or MIB: GB/s of text for each kernel, and for all of
// them without and with n-grams. With an argument, it measures only the kinds of text whose name contains it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "../quality_kernels.cuh"
#include "cuda.hpp"
#include "quantile.hpp"

// Defined in test/quality_reference.cpp.
bool slow_quality(const std::string &row, std::map<std::string, uint32_t> *counters);

namespace {

using namespace millrace;
using yardstick::check;

constexpr uint32_t kMebibyte = 1 << 20, kRuns = 21, kMostChecked = kMebibyte; // the reference takes some seconds for a record of kMostChecked bytes
constexpr uint32_t kWholeBatch = 0xffffffffu;                                    // size of a record that fills the batch

// A kind of text.
struct Kind {
    const char *name;
    uint32_t record;
    std::vector<const char *> words;
    const char *separator;
    uint32_t line, paragraph; // mean words of a line, and mean lines of a paragraph
};

const std::vector<const char *> kEnglish = {"the",   "river", "and",    "hundred", "years", "of",     "mill",  "have", "with",  "stood.", "more",   "people", "there,",
                                            "would", "be",    "useful", "to",      "any",   "common", "words", "use",  "time.", "it's",   "(often)", "1984",   "website"};
const std::vector<const char *> kMixed = {"the", "café", "and", "über", "of", "“quoted”", "more", "naïve", "words.", "中文", "https://example.com/a?b=c", "have", "mill", "river", "it’s"};
const std::vector<const char *> kChinese = {"今天天气", "很好。", "我们去公园", "吧", "二百年", "河边的磨坊", "，", "更多的人"};

const std::vector<Kind> kinds = {
    {"ASCII, 200 B", 200, kEnglish, " ", 12, 4},
    {"ASCII, 2 KiB", 2 << 10, kEnglish, " ", 12, 4},
    {"ASCII, 2 KiB, no line ends", 2 << 10, kEnglish, " ", 1 << 30, 1},
    {"ASCII, 2 KiB, short lines", 2 << 10, kEnglish, " ", 3, 2},
    {"mixed, 2 KiB", 2 << 10, kMixed, " ", 12, 4},
    {"Chinese, 2 KiB", 2 << 10, kChinese, "", 12, 4},
    {"ASCII, 12 KiB", 12 << 10, kEnglish, " ", 12, 4},
    {"ASCII, 64 KiB", 64 << 10, kEnglish, " ", 12, 4},
    {"one record, ASCII", kWholeBatch, kEnglish, " ", 12, 4},
    {"one record, no line ends", kWholeBatch, kEnglish, " ", 1 << 30, 1},
    {"one record, newlines", kWholeBatch, {"\n"}, "", 1 << 30, 1},
    {"one record, lines of one letter", kWholeBatch, {"a"}, "", 1, 1 << 30},
    {"one record, paragraphs of one letter", kWholeBatch, {"a"}, "", 1, 1},
    {"one record, letters", kWholeBatch, {"a"}, "", 1 << 30, 1},
    {"one record, equal words of one letter", kWholeBatch, {"a"}, " ", 1 << 30, 1},
    {"one record, words of two letters", kWholeBatch, {"a", "b"}, " ", 1 << 30, 1},
    {"ASCII, 2 KiB, equal words", 2 << 10, {"mill"}, " ", 12, 4},
    {"ASCII, 2 KiB, two words of one letter", 2 << 10, {"a", "b"}, " ", 12, 4},
};

struct Random {
    uint64_t state = 1;
    uint32_t below(uint32_t bound) {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        return static_cast<uint32_t>(((state * 0x2545f4914f6cdd1dull >> 32) * bound) >> 32);
    }
};

// Returns a text of at most, and nearly, `bytes` bytes.
std::string make_text(const Kind &kind, uint32_t bytes, Random &random) {
    std::string text;
    text.reserve(bytes);
    for (;;) {
        std::string next = kind.words[random.below(static_cast<uint32_t>(kind.words.size()))];
        if (random.below(kind.line) != 0) {
            next += kind.separator;
        } else {
            next += random.below(kind.paragraph) == 0 ? "\n\n" : "\n";
        }
        if (text.size() + next.size() > bytes) return text;
        text += next;
    }
}

struct Input {
    std::vector<std::string> rows;
    std::vector<uint32_t> offsets = {0};
    std::string bytes;
};

Input make_input(const Kind &kind, uint32_t bytes) {
    Input input;
    Random random;
    uint32_t record = std::min(kind.record, bytes);
    while (input.bytes.size() + record <= bytes) {
        input.rows.push_back(make_text(kind, record, random));
        input.bytes += input.rows.back();
        input.offsets.push_back(static_cast<uint32_t>(input.bytes.size()));
    }
    return input;
}

// A batch on the device.
class Batch {
public:
    explicit Batch(const Input &input)
        : rows_(static_cast<uint32_t>(input.rows.size())), bytes_(static_cast<uint32_t>(input.bytes.size())), stream_(yardstick::make_stream()) {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
        multiprocessors_ = static_cast<uint32_t>(properties.multiProcessorCount);
        uint32_t longest = 0;
        for (const std::string &row : input.rows) longest = row.size() > longest ? static_cast<uint32_t>(row.size()) : longest;
        uint32_t tiles = longest > kQualityWhole ? tile_count(bytes_, kQualityTile) : 0;
        data_ = yardstick::make_device_memory(bytes_), offsets_ = yardstick::make_device_memory(4ull * (rows_ + 1));
        result_ = yardstick::make_device_memory(result_bytes()), status_ = yardstick::make_device_memory(rows_);
        scratch_ = yardstick::make_device_memory(8 * quality_entries(bytes_, rows_) + 16ull * tiles);
        check(cudaMemcpy(data_.get(), input.bytes.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
        check(cudaMemcpy(offsets_.get(), input.offsets.data(), 4ull * (rows_ + 1), cudaMemcpyHostToDevice), "cudaMemcpy");
        unsigned long long *entries = reinterpret_cast<unsigned long long *>(scratch_.get());
        uint32_t *ends = reinterpret_cast<uint32_t *>(entries + quality_entries(bytes_, rows_));
        memory_ = yardstick::make_device_memory(4 * ngrams_memory(bytes_, rows_)), waiting_ = yardstick::make_device_memory(4ull * (rows_ + 1));
        work_ = {data_.get(), reinterpret_cast<uint32_t *>(offsets_.get()), rows_, bytes_, kQualityTile, kQualityWhole, tiles, 12345, kQualityAllFields,
                 reinterpret_cast<uint32_t *>(result_.get()), status_.get(), entries, ends, ends + 2 * tiles};
    }

    // Runs the kernels kRuns times and prints the rates.
    void measure(const char *name) {
        std::vector<double> scan, settle, repeats, ngrams, all, with;
        yardstick::Event times[5];
        for (yardstick::Event &time : times) time = yardstick::make_event(0);
        for (uint32_t i = 0; i < kRuns; i++) {
            run(times);
            scan.push_back(yardstick::seconds_between(times[0].get(), times[1].get()));
            settle.push_back(yardstick::seconds_between(times[1].get(), times[2].get()));
            repeats.push_back(yardstick::seconds_between(times[2].get(), times[3].get()));
            ngrams.push_back(yardstick::seconds_between(times[3].get(), times[4].get()));
            all.push_back(yardstick::seconds_between(times[0].get(), times[3].get()));
            with.push_back(yardstick::seconds_between(times[0].get(), times[4].get()));
        }
        printf("%-38s  %8.1f  %8.1f  %8.1f  %8.1f  %8.1f  %8.1f  %10.3f\n", name, rate(scan), rate(settle), rate(repeats), rate(ngrams), rate(all), rate(with),
               1e3 * yardstick::median(with));
        fflush(stdout); // the comparison with the reference takes seconds
    }

    // Compares the results of the last run with the reference.
    void compare(const char *name, const Input &input) const {
        std::vector<uint32_t> fields(rows_ * kQualityAllFields);
        check(cudaMemcpy(fields.data(), result_.get(), result_bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        uint64_t checked = 0;
        for (uint32_t r = 0; r < rows_ && (r == 0 || checked + input.rows[r].size() <= kMostChecked); r++) {
            std::map<std::string, uint32_t> counters;
            slow_quality(input.rows[r], &counters);
            checked += input.rows[r].size();
            for (uint32_t f = 0; f < kQualityAllFields; f++) {
                uint32_t got = fields[r * kQualityAllFields + f], want = counters[kQualityNames[f]];
                if (got == want) continue;
                throw yardstick::Failure(std::string(name) + ", record " + std::to_string(r) + ": " + kQualityNames[f] + " is " +
                                         std::to_string(got) + ", want " + std::to_string(want));
            }
        }
    }

private:
    uint64_t result_bytes() const { return 4ull * kQualityAllFields * rows_; }

    double rate(const std::vector<double> &seconds) const { return bytes_ / yardstick::median(seconds) * 1e-9; }

    void run(const yardstick::Event (&times)[5]) {
        cudaStream_t stream = stream_.get();
        uint32_t units = (rows_ + work_.tiles + kQualityWarps - 1) / kQualityWarps;
        yardstick::record(times[0].get(), stream);
        if (work_.tiles != 0) {
            check(cudaMemsetAsync(result_.get(), 0, result_bytes(), stream), "cudaMemsetAsync");
            check(cudaMemsetAsync(status_.get(), 0, rows_, stream), "cudaMemsetAsync");
        }
        quality_scan<<<units, kQualityThreads, 0, stream>>>(work_);
        yardstick::record(times[1].get(), stream);
        if (work_.tiles != 0) quality_settle<<<(rows_ + kQualityWarps - 1) / kQualityWarps, kQualityThreads, 0, stream>>>(work_);
        yardstick::record(times[2].get(), stream);
        quality_repeats<<<units, kQualityThreads, 0, stream>>>(work_);
        yardstick::record(times[3].get(), stream);
        QualityNgramsWork ngrams = {work_, kSharedWords, reinterpret_cast<uint32_t *>(memory_.get()), reinterpret_cast<uint32_t *>(waiting_.get())};
        check(cudaMemsetAsync(waiting_.get(), 0, 4, stream), "cudaMemsetAsync");
        quality_ngrams<<<rows_, kNgramThreads, 0, stream>>>(ngrams);
        quality_long_ngrams<kLongNgramThreads><<<std::min(rows_, kLongNgramBlocks * multiprocessors_), kLongNgramThreads, 0, stream>>>(ngrams);
        yardstick::record(times[4].get(), stream);
        check(cudaGetLastError(), "launch");
        yardstick::synchronize(stream);
    }

    uint32_t rows_, bytes_, multiprocessors_;
    yardstick::Stream stream_;
    yardstick::DeviceMemory data_, offsets_, result_, status_, scratch_, memory_, waiting_;
    QualityWork work_{};
};

void measure_all(const char *wanted, uint32_t bytes) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    printf("%s\n%-38s  %8s  %8s  %8s  %8s  %8s  %8s  %10s\n", properties.name, "text, GB/s", "scan", "settle", "repeats", "n-grams", "without", "with",
           "with, ms");
    for (const Kind &kind : kinds) {
        if (strstr(kind.name, wanted) == nullptr) continue;
        Input input = make_input(kind, bytes);
        Batch batch(input);
        batch.measure(kind.name);
        batch.compare(kind.name, input);
    }
}

} // namespace

int main(int count, char **arguments) {
    try {
        measure_all(count > 1 ? arguments[1] : "", count > 2 ? static_cast<uint32_t>(atoi(arguments[2])) * kMebibyte : 16 * kMebibyte);
    } catch (const std::exception &e) {
        fprintf(stderr, "quality-bench: %s\n", e.what());
        return 1;
    }
    return 0;
}
