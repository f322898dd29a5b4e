// Checks operators with millrace/operator.cuh against references, over adversarial ragged batches:
//
//   check-operators FOLDER    with FOLDER/NAME.so for the CPU and FOLDER/NAME.lanes.so for the code of the GPU
#include <string.h>

#include <algorithm>
#include <functional>

#include "batch.hpp"
#include "hashes.hpp"
#include "window.hpp"

using Reference = std::function<Answer(const std::string &)>;

// Returns the answer for a record that isn't done. Its fixed part is zeros, and its strings are empty.
static Answer refused(uint8_t code, uint32_t stride, uint32_t strings) {
    Answer a;
    a.code = code;
    a.record.assign(stride, 0);
    a.strings.assign(strings, "");
    return a;
}

static Answer entropy(uint32_t bits, const std::string &row) {
    if (row.empty()) return refused(1, 4, 0);
    std::vector<uint32_t> bins(1u << bits);
    for (unsigned char c : row) bins[c / (256u >> bits)]++;
    Answer a;
    a.record = Packer().add<uint32_t>(*std::max_element(bins.begin(), bins.end())).padded();
    return a;
}

// Returns the stride of kinds: the fields up to sums, rounded up to 8 for total, and then total, digits with half, and
// head with padding.
static uint32_t kinds_stride(uint32_t n) { return (28 + 4 * n + 7) / 8 * 8 + 8 + 8 + 8; }

static std::string upper(const std::string &row) {
    std::string s = row;
    for (char &c : s) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return s + "!-";
}

static Answer kinds(uint32_t n, const std::string &row) {
    uint32_t stride = kinds_stride(n);
    if (row[0] == 'x') return refused(1, stride, 2);
    if (row[0] == 'y') return refused(2, stride, 2);
    if (row.size() > 1 && row[1] == 'z') return refused(MILLRACE_FAILED, stride, 2);
    Answer a;
    std::vector<int32_t> sums(n);
    uint64_t total = ~0ull;
    std::string digits = row.empty() ? "" : std::to_string(row.size());
    for (size_t i = 0; i < row.size(); i++) sums[i % n] += static_cast<uint8_t>(row[i]) - 1, total += static_cast<uint8_t>(row[i]);
    Packer p;
    p.add<uint8_t>(static_cast<uint8_t>(row.size() + 200)).add<double>(static_cast<double>(row.size()) * 0.375).add<int8_t>(-3);
    for (size_t i = 0; i < 3; i++) p.add<uint16_t>(i < row.size() ? static_cast<uint16_t>(static_cast<uint8_t>(row[i]) << 8 | i) : 0);
    p.add<uint32_t>(static_cast<uint32_t>(row.size()) + 2);
    for (int32_t sum : sums) p.add<int32_t>(sum);
    p.add<uint64_t>(total).add<uint32_t>(static_cast<uint32_t>(digits.size())).add<float>(static_cast<float>(row.size()) / 2);
    for (size_t i = 0; i < 5; i++) p.add<uint8_t>(i < row.size() ? static_cast<uint8_t>(row[i]) : 0);
    a.record = p.padded();
    a.strings = {upper(row), std::string(digits.rbegin(), digits.rend())};
    return a;
}

// The parameter block of kinds, with its defaults except n.
static std::string kinds_block(uint32_t n) {
    return Packer().add<uint8_t>(200).add<int16_t>(-300).add<uint32_t>(n).add<double>(0.375).add<int64_t>(-1).add<float>(-2.5f).add<uint64_t>(~0ull).add(true).bytes();
}

static Answer careless(const std::string &row) {
    char what = row.empty() ? 0 : row[0];
    bool outside = what != 0 && strchr("rRLwWtsb", what) != nullptr;
    if (outside || what == 'l') return refused(MILLRACE_OUT_OF_BOUNDS, 24, 1);
    Answer a;
    a.record = Packer().add(static_cast<uint32_t>(row.size())).add(0u).add(11u).add(0u).add(0u).add(1u).padded();
    a.strings = {"t"};
    return a;
}

// Returns the little-endian number at a position.
template <class T>
static T number(const std::string &row, size_t at) {
    T value;
    memcpy(&value, row.data() + at, sizeof value);
    return value;
}

static Answer reading(const std::string &row) {
    uint64_t forward = 0, backward = 0, jumps = 0, loads = 0, shorts = 0, longs = 0;
    size_t n = row.size();
    for (size_t i = 0; i < n; i++) {
        forward = 31 * forward + static_cast<uint8_t>(row[i]);
        backward = 31 * backward + static_cast<uint8_t>(row[n - 1 - i]);
        if (i >= 5000) continue;
        jumps = 31 * jumps + static_cast<uint8_t>(row[(i + 1) * 7919 % n]);
        loads = 31 * loads + static_cast<uint8_t>(row[i]);
        if (n - i >= 2) loads += 3 * number<uint16_t>(row, i), shorts += static_cast<uint64_t>(number<int16_t>(row, i));
        if (n - i >= 4) loads += 5ull * number<uint32_t>(row, i);
        if (n - i >= 8) loads += 7 * number<uint64_t>(row, i), longs += static_cast<uint64_t>(number<int64_t>(row, i) >> 3);
    }
    Answer a;
    a.record = Packer().add(forward).add(backward).add(jumps).add(loads).add(shorts ^ longs).padded();
    return a;
}

static Answer spread(const std::string &row) {
    const uint32_t stride = 88;
    uint64_t sum = 0;
    int32_t least = 1000;
    uint8_t most = 0, any_zero = 0, all_letters = 1;
    std::vector<uint32_t> bins(16);
    std::string letters;
    for (unsigned char c : row) {
        if (c == 255) return refused(1, stride, 1);
        bool letter = c >= 'a' && c <= 'z';
        sum += c, least = std::min(least, c - 100), most = std::max<uint8_t>(most, c);
        any_zero |= c == 0, all_letters &= letter, bins[15 - c % 16]++;
        if (letter) letters += static_cast<char>(c);
    }
    Packer p;
    p.add(sum).add(least).add(most).add(any_zero).add(all_letters).add<uint32_t>(row.empty() ? 0 : static_cast<uint8_t>(row[0]));
    for (uint32_t bin : bins) p.add(bin);
    p.add(static_cast<uint32_t>(letters.size()));
    Answer a;
    a.record = p.padded();
    a.strings = {letters};
    return a;
}

// ---- batches ----

static std::string random_bytes(Random &random, uint32_t bytes) {
    static const char letters[] = "abcxyzrRlLwWtsb";
    std::string s(bytes, 0);
    bool text = random.below(2) == 0;
    for (char &c : s) c = static_cast<char>(text ? letters[random.below(sizeof letters - 1)] : random.below(256));
    if (bytes > 0 && random.below(3) == 0) s[0] = letters[random.below(sizeof letters - 1)];
    return s;
}

struct Named {
    const char *name;
    Rows rows;
    bool large = false;
};

static std::vector<Named> batches() {
    Random random(11);
    Rows lengths, ragged, pages, first_bytes, empties(8192);
    for (uint32_t n = 0; n <= 140; n++) lengths.push_back(random_bytes(random, n));
    for (int r = 0; r < 200; r++) ragged.push_back(random_bytes(random, random.below(3) == 0 ? 0 : random.below(random.below(10) == 0 ? 5000 : 90)));
    for (uint32_t n : {4096u, 4095u, 1u, 4097u, 0u, 8192u, 4096u}) pages.push_back(random_bytes(random, n));
    for (int c = 0; c < 256; c++) first_bytes.push_back(static_cast<char>(c) + random_bytes(random, random.below(6)));
    Rows few = empties;
    few[0] = "a", few[4000] = random_bytes(random, 700), few[8191] = "z";
    return {{"no record", {}}, {"an empty record", {""}}, {"one byte", {"q"}}, {"every length", lengths}, {"ragged", ragged},
            {"pages", pages}, {"first bytes", first_bytes}, {"8192 empty records", empties, true}, {"few among empty ones", few, true},
            {"a long record", {"", random_bytes(random, 300000), "c"}, true}, {"zeros", Rows(70, std::string(65, '\0'))}};
}

static std::string quoted(const std::string &bytes) {
    std::string s;
    char digits[4];
    for (size_t i = 0; i < bytes.size() && i < 96; i++) snprintf(digits, sizeof digits, "%02x ", static_cast<uint8_t>(bytes[i])), s += digits;
    return s;
}

static std::vector<Answer> answers(const Rows &rows, const Reference &reference) {
    std::vector<Answer> all;
    for (const std::string &row : rows) all.push_back(reference(row));
    return all;
}

static void check_answers(const std::string &what, const Rows &rows, const std::vector<Answer> &got, const std::vector<Answer> &wanted) {
    for (size_t r = 0; r < rows.size(); r++) {
        const Answer &want = wanted[r];
        if (got[r].code == want.code && got[r].record == want.record && got[r].strings == want.strings) continue;
        fprintf(stderr, "%s: record %zu of %zu bytes: got code %u and %swant code %u and %s\n", what.c_str(), r, rows[r].size(),
                got[r].code, quoted(got[r].record).c_str(), want.code, quoted(want.record).c_str());
        for (size_t i = 0; i < want.strings.size(); i++) {
            fprintf(stderr, "string %zu: got %zu bytes %s, want %zu bytes %s\n", i, got[r].strings[i].size(), quoted(got[r].strings[i]).c_str(),
                    want.strings[i].size(), quoted(want.strings[i]).c_str());
        }
        exit(1);
    }
}

// Checks both libraries of an operator over all batches.
static void check_operator(const std::string &folder, const std::string &name, const std::string &block, uint32_t stride,
                           const Reference &reference, const std::string &tables = "") {
    for (bool lanes : {false, true}) {
        Library library((folder + "/" + name + (lanes ? ".lanes.so" : ".so")).c_str());
        CHECK_EQUAL(strcmp(library.description().name, name.c_str()), 0, "%s", library.description().name);
        for (const Named &batch : batches()) {
            if (lanes && library.description().form != MILLRACE_THREAD && batch.large) continue; // fibers are slow
            std::string what = name + (lanes ? " in lanes: " : ": ") + batch.name;
            std::vector<Answer> want = answers(batch.rows, reference);
            check_answers(what, batch.rows, library.run(batch.rows, block, stride, 0xa5, false, tables), want);
            check_answers(what, batch.rows, library.run(batch.rows, block, stride, 0x5a, !lanes, tables), want);
        }
    }
}

// ---- passes ----

static const std::string weights = "\x05\xff\x01", swaps = "ZYXW"; // tables of tally; zeros follow each up to a multiple of 16

static Answer tally(const std::string &row) {
    uint64_t weight = 3;
    uint32_t letters = 0, seen = 0, last = 0;
    int32_t least = 0;
    int64_t most = 0;
    std::string swapped = row;
    for (size_t i = 0; i < row.size(); i++) {
        uint8_t byte = static_cast<uint8_t>(row[i]);
        weight += static_cast<uint8_t>(weights[byte % weights.size()]);
        letters += byte >= 'a' && byte <= 'z', seen |= 1u << byte % 32;
        least = std::min(least, byte - 128), most = std::max<int64_t>(most, byte - 128);
        if (byte == 0) last = static_cast<uint32_t>(i) + 1;
        if (byte < swaps.size()) swapped[i] = swaps[byte];
    }
    if (letters == 77) return refused(1, 40, 1);
    Answer a;
    a.record = Packer().add(weight).add(letters).add(seen).add(least).add(most).add(last).add(static_cast<uint32_t>(row.size())).padded();
    a.strings = {swapped};
    return a;
}

// The words of keywords. Some words are parts of other words, one is a phrase, and one occurs twice. Lines end with LF or CRLF.
static const std::vector<std::string> lines = {"a", "", "ab", "abc", "z r", "RLWt", "abc", "x\ry", "\xff\x01", "tsbabc", "rr"};

static std::string lower(std::string s) {
    for (char &c : s) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return s;
}

static Answer keywords(bool whole, bool fold, const std::string &row) {
    auto inside = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 128; };
    std::string text = fold ? lower(row) : row;
    uint32_t matches = 0, first = 0;
    for (size_t at = 0; at < row.size(); at++) {
        for (size_t l = 0; l < lines.size(); l++) {
            std::string word = fold ? lower(lines[l]) : lines[l];
            if (word.empty() || text.compare(at, word.size(), word) != 0) continue;
            size_t end = at + word.size();
            bool begins = at == 0 || !inside(row[at - 1]) || !inside(word[0]), ends = end == row.size() || !inside(row[end]) || !inside(word.back());
            if (whole && !(begins && ends)) continue;
            if (matches++ == 0) first = static_cast<uint32_t>(l) + 1;
        }
    }
    Answer a;
    a.record = Packer().add(matches).add(first).padded();
    return a;
}

// Returns the entry of a table in a parameter block.
static uint64_t place(uint32_t at, size_t size) { return static_cast<uint64_t>(size) << 32 | at; }

static void check_passes(const std::string &folder) {
    std::string tables = weights + std::string(16 - weights.size(), 0) + swaps;
    std::string block = Packer().add<uint8_t>(3).add(place(0, weights.size())).add(place(16, swaps.size())).bytes();
    check_operator(folder, "tally", block, 40, tally, tables);

    std::string words;
    for (size_t i = 0; i < lines.size(); i++) words += lines[i] + (i + 1 == lines.size() ? "" : i % 2 == 0 ? "\n" : "\r\n");
    for (bool whole : {false, true}) {
        for (bool fold : {false, true}) {
            check_operator(folder, "keywords", Packer().add(place(0, words.size())).add<uint8_t>(whole).add<uint8_t>(fold).bytes(), 8,
                           [=](const std::string &row) { return keywords(whole, fold, row); }, words);
        }
    }

    std::string table = "table", sizes = Packer().add(place(0, table.size())).bytes();
    for (const char *name : {"stray.so", "stray.lanes.so"}) {
        Library library((folder + "/" + name).c_str());
        for (char what : std::string("x01234567ts")) {
            Rows rows = {"abc", "", what + std::string("y"), "d"};
            bool pass = what >= '0' && what <= '7';
            auto want = [=](const std::string &row) {
                if (pass) return refused(MILLRACE_BATCH_OUT_OF_BOUNDS, 4, 0);
                if (!row.empty() && (row[0] == 't' || row[0] == 's')) return refused(MILLRACE_OUT_OF_BOUNDS, 4, 0);
                Answer a;
                a.record = Packer().add(static_cast<uint32_t>(row.size())).padded();
                return a;
            };
            check_answers(std::string(name) + " " + what, rows, library.run(rows, sizes, 4, 0x5a, false, table), answers(rows, want));
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: check-operators FOLDER\n");
        return 2;
    }
    for (uint32_t bits : {1u, 4u, 6u}) {
        check_operator(argv[1], "entropy", Packer().add(bits).bytes(), 4, [=](const std::string &row) { return entropy(bits, row); });
    }
    for (uint32_t n : {1u, 2u, 3u, 9u}) {
        check_operator(argv[1], "kinds", kinds_block(n), kinds_stride(n), [=](const std::string &row) { return kinds(n, row); });
    }
    check_operator(argv[1], "careless", "", 24, careless);
    check_operator(argv[1], "reading", "", 40, reading);
    check_operator(argv[1], "reading_warp", "", 40, reading);
    check_operator(argv[1], "spread", "", 88, spread);
    check_operator(argv[1], "spread_block", "", 88, spread);
    check_passes(argv[1]);
    for (uint32_t width : {1u, 5u, 8u}) {
        check_operator(argv[1], "simhash", Packer().add(width).bytes(), 8, [=](const std::string &row) { return simhash(width, row); });
    }
    check_blake3(argv[1]);
    check_windows();
    printf("operators: every form and every kind of field is right\n");
}
