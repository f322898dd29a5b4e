// Tests quality on the host: known answers, and texts of pieces that reveal mistakes at the edges of steps, words,
// lines, paragraphs and segments, compared with a reference.
#include "cuda_on_host.hpp"

#include "../quality_kernels.cuh"
#include "check.hpp"
#include "quality_answers.hpp"

using namespace millrace;

using Counters = std::map<std::string, uint32_t>;

// How a test divides records, and how good its hash is.
struct Division {
    uint32_t tile, longest_whole, seed;
};

// Large tiles that leave every record whole, and tiles that divide most records.
static const Division divisions[] = {{kQualityTile, kQualityWhole, 1}, {32, 64, 2}, {50, 100, 3}, {256, 600, 4}};

// The results of a batch: the counters and the statuses of its rows.
struct QualityResult {
    std::vector<uint32_t> fields;
    std::vector<uint8_t> status;
};

static QualityResult run_quality(const Batch &batch, const Division &division) {
    uint32_t longest = 0, tiles = tile_count(batch.length, division.tile);
    for (uint32_t r = 0; r < batch.rows; r++) longest = max(longest, batch.offsets[r + 1] - batch.offsets[r]);
    if (longest <= division.longest_whole) tiles = 0;
    QualityResult result = {std::vector<uint32_t>(batch.rows * kQualityFields, tiles == 0 ? 0xdeadbeef : 0),
                            std::vector<uint8_t>(batch.rows, tiles == 0 ? 0xee : 0)};
    std::vector<unsigned long long> entries(quality_entries(batch.length, batch.rows), 0xdeadbeefdeadbeef);
    std::vector<uint32_t> ends(2 * tiles, 0xdeadbeef), trimmed(2 * tiles, 0xdeadbeef);
    QualityWork work = {batch.bytes, batch.offsets.data(), batch.rows, batch.length, division.tile, division.longest_whole, tiles,
                        division.seed, result.fields.data(), result.status.data(), entries.data(), ends.data(), trimmed.data()};
    uint32_t rows = (batch.rows + kQualityWarps - 1) / kQualityWarps, units = (batch.rows + tiles + kQualityWarps - 1) / kQualityWarps;
    emulator::launch(units, kQualityThreads, quality_scan, work);
    if (tiles != 0) emulator::launch(rows, kQualityThreads, quality_settle, work);
    emulator::launch(units, kQualityThreads, quality_repeats, work);
    return result;
}

// Compares the results of a row. `counters` has more than the operator, or is empty for a row that is no UTF-8.
static void check_row(const char *what, const std::string &text, const QualityResult &got, uint32_t row, const Counters &counters, const Division &d) {
    CHECK_EQUAL(got.status[row], counters.empty() ? 1u : 0u, "status of %s, row %u of %zu bytes, tiles of %u", what, row, text.size(), d.tile);
    for (uint32_t f = 0; f < kQualityFields; f++) {
        auto found = counters.find(kQualityNames[f]);
        uint32_t want = found == counters.end() ? 0 : found->second;
        if (got.fields[row * kQualityFields + f] != want) fprintf(stderr, "the text: <<<%s>>>\n", text.c_str());
        CHECK_EQUAL(got.fields[row * kQualityFields + f], want, "%s of %s, row %u of %zu bytes, tiles of %u", kQualityNames[f], what, row,
                    text.size(), d.tile);
    }
}

static void check_known_answers(uint32_t lead, const Division &division) {
    Rows rows;
    for (const QualityAnswer &answer : quality_answers) rows.push_back(answer.text);
    QualityResult got = run_quality(Batch(rows, lead), division);
    for (uint32_t r = 0; r < rows.size(); r++) {
        Counters counters(quality_answers[r].counters.begin(), quality_answers[r].counters.end());
        check_row(quality_answers[r].name, rows[r], got, r, counters, division);
        Counters slow;
        CHECK_EQUAL(slow_quality(rows[r], &slow), !counters.empty(), "the reference's status of %s", quality_answers[r].name);
        for (auto &[name, value] : slow) CHECK_EQUAL(value, counters[name], "the reference's %s of %s", name.c_str(), quality_answers[r].name);
    }
}

static void check_texts(const char *what, const Rows &rows, uint32_t lead, const Division &division) {
    QualityResult got = run_quality(Batch(rows, lead), division);
    for (uint32_t r = 0; r < rows.size(); r++) {
        Counters slow;
        slow_quality(rows[r], &slow);
        check_row(what, rows[r], got, r, slow, division);
    }
}

// Pieces of random texts.
static const char *const pieces[] = {
    "a", "the", "and", "with", "be", "of", "to", "that", "have", "#", "##", "...", "[...]", "(...)", "…", "[…]", "-»", "»", "(…)",
    "read more", "READ more..", "read  more", ".", "?", "!", "\"", "'", "•", "◦", "-", "*", "‣", " ", " ", " ", "\t", "\r", "\r\n", "\n", "\n",
    "\n\n", "\n\n\n", "\n\n\n\n", "\x1c", "\x1f", "\b", "\v", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000", "\u200b", "é", "中文", "😀", "\U0001e900",
    "\u0903", "٠", "。", "\u1362", "7", "42", "(", "]", "⟨", "http", "https", "://", "http://", "https://a.b/c", "http://x%41%4g", "%", "%2", "porn",
    "http://porn", "lorem ipsum", "Lorem", " ipsum", "terms of use", "Privacy Policy", "coo\u212aie policy", "use cookies", "uses cookies",
    "use of coo\u212aie", "s", "privacy & cookies policy", "any cookies", "word", "中\n", "\x01\n", "same line", "same line\n", "x\n\nx\n\n", "\u0130", "K", "\u212a",
};

static std::string random_text(Random &random, uint32_t count) {
    std::string text;
    uint32_t few = 1 + random.below(sizeof pieces / sizeof pieces[0]), first = random.below(sizeof pieces / sizeof pieces[0]);
    if (random.below(3) != 0) few = sizeof pieces / sizeof pieces[0];
    for (uint32_t i = 0; i < count; i++) text += pieces[(first + random.below(few)) % (sizeof pieces / sizeof pieces[0])];
    return text;
}

// Every kind of bytes that are no UTF-8, with text before and after it.
static Rows invalid_texts(Random &random) {
    Rows rows;
    for (const char *bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xdf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe1\x80", "\xed\xa0\x80",
                            "\xed\xbf\xbf", "\xef\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                            "\xf8", "\xff", "\xc2\xc2\x80", "\xe2\x82\x41", "\xf0\x9f\x41\x80", "\xc3\xa9\xa9", "\xe4\xb8\xad\x80", "\xf0\x9f\x98\x80\x80"}) {
        rows.push_back(bad);
        rows.push_back(std::string(27 + random.below(7), 'x') + bad);
        rows.push_back(random_text(random, 10) + bad + random_text(random, 10));
    }
    for (uint32_t before = 28; before < 33; before++) rows.push_back(std::string(before, 'x') + "\xe4\xb8" + "only ASCII in the next step");
    for (const char *good : {"\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"}) rows.push_back(good);
    return rows;
}

// A pattern at every position around the edge between two steps.
static Rows shifted(const std::string &pattern) {
    Rows rows;
    for (uint32_t before : {0u, 1u, 31u - static_cast<uint32_t>(pattern.size()) % 31}) {
        for (uint32_t shift = 0; shift < 34; shift += 1 + shift % 3) rows.push_back(std::string(before, '\n') + std::string(shift, 'z') + " " + pattern + " z");
    }
    return rows;
}

static void check_edges() {
    for (const char *pattern : {"the", "[...]", "[…]", "\nend [...]\n", "http://porn%41b", "\n\n\n\nlorem ipsum\n\n", "coo\u212aie policy", "read more..\n",
                                "\u3000•x", "\r\n", "#a#b#", "##", "\u2028", "a\n\n\na\n\n\na\n"}) {
        check_texts("a shifted pattern", shifted(pattern), 3, divisions[0]);
    }
}

// All texts of at most that many characters of an alphabet.
static Rows all_texts(const std::string &alphabet, uint32_t most) {
    Rows rows = {""};
    for (size_t from = 0, length = 0; length < most; length++) {
        size_t to = rows.size();
        for (; from < to; from++) {
            for (char c : alphabet) rows.push_back(rows[from] + c);
        }
    }
    return rows;
}

static void check_adversaries() {
    Rows rows = {std::string(3000, '\n'), std::string(3000, ' '), std::string(9000, 'a'), std::string(900, '#'), "\n" + std::string(70, '\n') + "x"};
    std::string lines, paragraphs, urls, words;
    for (int i = 0; i < 700; i++) lines += "a\n", paragraphs += "b\n\n", words += "any ";
    for (int i = 0; i < 60; i++) urls += "http://", urls += i % 7 == 0 ? " " : "";
    for (const std::string &row : {lines, paragraphs, urls, words, std::string(200, 'u') + "\n" + std::string(199, 'v')}) rows.push_back(row);
    for (const Division &division : divisions) check_texts("an adversary's text", rows, 1, division);
}

static void check_batches(Random &random) {
    for (uint32_t round = 0; round < 12; round++) {
        Rows rows;
        for (uint32_t r = 0; r < 12; r++) rows.push_back(random.below(6) == 0 ? "" : random_text(random, random.below(r == 0 ? 400 : 60)));
        check_texts("random texts", rows, round % 4 == 0 ? 15 : round, divisions[round % 4]);
    }
    check_texts("invalid texts", invalid_texts(random), 5, divisions[0]);
    check_texts("invalid texts", invalid_texts(random), 5, divisions[1]);
    check_texts("empty rows", Rows(9), 0, divisions[1]);
}

void check_quality() {
    Random random(11);
    check_known_answers(0, divisions[0]);
    check_known_answers(7, divisions[2]);
    check_edges();
    check_texts("short texts", all_texts("a \n", 5), 0, divisions[0]);
    check_texts("short texts of two characters", all_texts("a\n", 7), 0, divisions[0]);
    check_adversaries();
    check_batches(random);
}
